"""Prepare a folder of token shards in parallel, from text of any size; resumable at any moment.

Documents are tokenised in units by processes; the results are kept in ``.work`` and named in a
journal. When all are there, shards are put together from them in input order, and the manifest is
written last. So the files depend on the text and the config alone.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from depthbench.config import digest_of
from depthbench.cores import cores
from depthbench.data.assemble import Rules, assemble
from depthbench.data.build import manifest_of
from depthbench.data.config import PrepareConfig
from depthbench.data.inputs import Drawn, Input, find_inputs
from depthbench.data.journal import FOLDER as WORK
from depthbench.data.journal import Journal, locked
from depthbench.data.manifest import (
    FILE,
    FORMAT,
    DomainFacts,
    Manifest,
)
from depthbench.data.shards import check_shard, token_dtype
from depthbench.data.sources import Document, UnreadableFile
from depthbench.data.tokenizer import (
    TRAINING_BYTES,
    ByteTokenizer,
    FileTokenizer,
    Tokenizer,
    file_of,
    identity,
    read,
    train_bpe,
)
from depthbench.data.unit import Job, Unit, hashes_of, validates
from depthbench.data.workers import tokenised
from depthbench.errors import DepthbenchError
from depthbench.files import write_atomic

TOKENIZER = "tokenizer.json"
CONTENT = "source or tokenizer files"
LARGEST_UNIT = 16_000_000
SMALLEST_UNIT = 1_000_000
UNITS = 64
"""So many units, within these bytes: what a kill can cost each worker."""


@dataclass
class Seen:
    """How far a preparation is."""

    step: str = "reading"
    read: int = 0
    """Bytes of input that are done."""
    total: int | None = None
    """Bytes of input in all, where that is known."""
    documents: int = 0
    bytes: int = 0
    """Of text."""
    tokens: int = 0
    resumed: int = 0
    """Tokens that were there from an earlier run."""


Report = Callable[[Seen], None]


@final
class Preparation:
    """One run of `prepare_folder`."""

    def __init__(
        self,
        config: PrepareConfig,
        inputs: list[Input],
        folder: Path,
        unit_bytes: int | None,
        say: Report,
    ) -> None:
        self.config, self.inputs, self.folder = config, inputs, folder
        self.say = say
        self.budget = None if config.megabytes is None else config.megabytes * 1e6
        read = [one.fingerprint() for one in inputs]
        self.fingerprint = digest_of([read, identity(config.tokenizer)])
        sizes = [one.size for one in inputs if one.size is not None]
        known = self.budget is None and len(sizes) == len(inputs)
        self.seen = Seen(total=sum(sizes) if known else None)
        share = sum(sizes) // UNITS if len(sizes) == len(inputs) else LARGEST_UNIT
        self.unit_bytes = unit_bytes or min(max(share, SMALLEST_UNIT), LARGEST_UNIT)
        self.at_work: dict[str, Drawn] = {}

    def plan(self) -> dict[str, Any]:
        """What must be the same for an unfinished preparation to go on, by name."""
        return json.loads(
            json.dumps(
                self.config.resolved()
                | {
                    "format": FORMAT,
                    CONTENT: self.fingerprint,
                    "unit size": self.unit_bytes,
                }
            )
        )

    def run(self, journal: Journal, workers: int) -> Manifest:
        """Tokenise what is missing, and put it together."""
        coder = self._coder(journal)
        dtype = token_dtype(coder.vocab)
        path = None if coder.json is None else journal.folder / TOKENIZER
        job = Job(path, dtype, self.config.validation_fraction)
        with tokenised(self._units(journal), job, workers) as results:
            for unit, made in results:
                drawn = self.at_work.pop(unit.key)
                self._count(journal.add_unit(unit, made, drawn.size, drawn.state))
        self.seen.step = "writing"
        rules = Rules(
            self.config.validation_fraction,
            self.budget,
            self.config.shard_tokens,
            dtype,
            coder.vocab,
        )
        names = [one.name for one in self.inputs]
        facts = assemble(names, journal, rules, lambda _: self.say(self.seen))
        return self._finish(coder, facts, journal)

    def _coder(self, journal: Journal) -> Tokenizer:
        """The tokenizer, with its file in `.work`."""
        name = self.config.tokenizer
        if name == "bytes":
            return ByteTokenizer()
        path = journal.folder / TOKENIZER
        if not path.exists():
            found = self._trained() if name == "bpe" else read(file_of(name))
            write_atomic(path, found.json)
        coder = read(path)
        kind = "byte-level BPE, trained on this text" if name == "bpe" else name
        # the same words whether or not it was there before
        return replace(coder, name=name, description=f"{kind}: {coder.vocab} tokens")

    def _trained(self) -> FileTokenizer:
        self.seen.step = "training a BPE"
        self.say(self.seen)
        found = train_bpe([list(self._sample(one)) for one in self.inputs], self.config.vocab)
        self.seen.step = "reading"
        return found

    def _sample(self, domain: Input) -> Iterator[Document]:
        """The first training documents of a domain, enough to train a BPE."""
        total, fraction = 0, self.config.validation_fraction
        for drawn in domain.units(self.unit_bytes):
            for source in drawn.sources:
                try:
                    for document in source.read():
                        if total > TRAINING_BYTES:
                            return
                        if not validates(hashes_of([document]), fraction)[0]:
                            total += len(document.data)
                            yield document
                except UnreadableFile:
                    if not source.lenient:
                        raise

    def _units(self, journal: Journal) -> Iterator[Unit]:
        """Units that are not done, in input order."""
        for facts in journal.units.values():
            self.seen.resumed += facts["tokens"]
            self._count(facts)
        for domain, one in enumerate(self.inputs):
            whole = Whole(journal, domain)
            first, text = whole.now()
            state = journal.units[whole.key(first - 1)]["state"] if first else None
            if self.budget is not None and text >= self.budget:
                continue
            for number, part in enumerate(one.units(self.unit_bytes, first, state), first):
                if whole.key(number) not in journal.units:
                    self.at_work[whole.key(number)] = part
                    yield Unit(domain, number, part.sources)
                # a stream knows its text before it is tokenised, files only then
                text += part.size if part.state is not None else 0
                if self.budget is not None and max(text, whole.now()[1]) >= self.budget:
                    break

    def _count(self, facts: dict[str, Any]) -> None:
        self.seen.read += facts["read"]
        self.seen.documents += facts["documents"]
        self.seen.bytes += facts["bytes"]
        self.seen.tokens += facts["tokens"]
        self.say(self.seen)

    def _finish(self, coder: Tokenizer, facts: list[DomainFacts], journal: Journal) -> Manifest:
        tokenizer_hash = None
        if coder.json is not None:
            text = (journal.folder / TOKENIZER).read_bytes()
            tokenizer_hash = hashlib.sha256(text).hexdigest()
            write_atomic(self.folder / TOKENIZER, text, journal.folder)
        origin = {one.name: one.origin for one in self.inputs}
        settings = self.config.resolved()
        manifest = manifest_of(settings, coder, tokenizer_hash, facts, origin, self.fingerprint)
        write_atomic(self.folder / FILE, manifest.model_dump_json(indent=1) + "\n", journal.folder)
        return manifest


@final
class Whole:
    """The units of a domain that are done without a gap."""

    def __init__(self, journal: Journal, domain: int) -> None:
        self.units, self.domain = journal.units, domain
        self.number, self.text = 0, 0

    def key(self, number: int) -> str:
        """Of a unit of this domain."""
        return Unit(self.domain, number, ()).key

    def now(self) -> tuple[int, int]:
        """Their number, and their bytes of text."""
        while (facts := self.units.get(self.key(self.number))) is not None:
            self.number, self.text = self.number + 1, self.text + facts["bytes"]
        return self.number, self.text


def prepare_folder(
    config: PrepareConfig,
    folder: Path,
    *,
    workers: int | None = None,
    unit_bytes: int | None = None,
    say: Report = lambda _: None,
) -> Manifest:
    """Write the dataset of ``config`` to ``folder``, or go on with it; its manifest.

    ``workers`` processes, one a core unless given; their number changes nothing in the files. A
    run that is killed loses the units that were at work. What is complete is checked and left.

    Raises `DepthbenchError` for text, tokenizers and folders that cannot be used, and for a folder
    that holds another dataset.
    """
    inputs = find_inputs(config)
    preparation = Preparation(config, inputs, folder, unit_bytes, say)
    plan = preparation.plan()
    done = _complete(preparation)
    if done is not None and not (folder / WORK).exists():
        return done
    with locked(folder) as journal:
        if done is None:
            journal.begin(plan)
            done = preparation.run(journal, workers or cores())
    return done


def _complete(preparation: Preparation) -> Manifest | None:
    """The manifest, if all that it names is there and what would be written.

    Raises `DepthbenchError` if the folder holds another dataset.
    """
    folder, config = preparation.folder, preparation.config
    if not (folder / FILE).exists():
        return None
    try:
        manifest = Manifest.load(folder)
    except DepthbenchError:
        return None
    settings = config.resolved()
    different = [name for name in settings if manifest.config.get(name) != settings[name]]
    if manifest.fingerprint != preparation.fingerprint:
        different.append(CONTENT)
    if different:
        raise DepthbenchError(
            f"{folder} holds a dataset that differs in {', '.join(different)}. Name another "
            "folder with --out, or remove this one"
        )
    try:
        for domain in manifest.domains:
            for shard in domain.shards():
                check_shard(folder, shard)
    except DepthbenchError:
        return None
    return manifest
