"""What models must know of the data, without preparing it where that is possible."""

from pathlib import Path
from typing import NamedTuple

from depthbench.data import tokenizer
from depthbench.data.config import DataConfig
from depthbench.data.dataset import Progress, prepare
from depthbench.data.manifest import Manifest
from depthbench.files import user_path
from depthbench.marks import Marks


class Vocabulary(NamedTuple):
    """Of the data's tokenizer."""

    size: int
    marks: Marks
    data_hash: str | None
    """None where the data was not looked at."""


def vocabulary_of(config: DataConfig, cache: Path, say: Progress) -> Vocabulary:
    """The tokenizer's vocabulary; a BPE that is trained on the text needs the text prepared.

    Raises `DepthbenchError` as `prepare` does for whatever had to be read.
    """
    if config.prepared is not None:
        manifest = Manifest.load(user_path(config.prepared))
    elif config.tokenizer == "bpe":
        say("preparing the data: the size of a trained BPE depends on its text")
        manifest = prepare(config, cache, say).manifest
    else:
        coder = tokenizer.make(config, ())
        marks = Marks(document=coder.document, sentence_ends=coder.sentence_ends)
        return Vocabulary(coder.vocab, marks, None)
    return Vocabulary(manifest.vocab, manifest.marks, manifest.hash)
