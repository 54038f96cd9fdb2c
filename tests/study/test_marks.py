"""A study tells a design that reads them which tokens start documents and end sentences."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from depthbench.marks import Marks
from depthbench.nn.model import Model, ModelConfig
from depthbench.study.engine import Place
from depthbench.study.run import Study, open_study, train_study
from tests.small import study_config

BYTES = Marks(document=256, sentence_ends=(33, 46, 63))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """`prenorm` and `cascade` on short sentences, trained."""
    root = tmp_path_factory.mktemp("marks")
    text = root / "told.txt"
    text.write_text("Depth. Width? A stream of tokens! " * 400, encoding="utf-8")
    sizes = [{"layers": 1, "width": 16, "heads": 2, "ffn": 24}]
    config = study_config(
        text,
        designs=["prenorm", "cascade"],
        shapes={"sizes": sizes},
        search={"learning_rates": [1e-2]},
    )
    opened = open_study(config, root / "runs", cache=root / "cache")
    train_study(opened, place=Place(workers=1))
    return opened


def trained(study: Study, design: str) -> tuple[ModelConfig, Path]:
    """The model config that a trial wrote down, and its weights."""
    [row] = [row for row in study.store.rows() if row.label == design]
    assert row.status == "done"
    folder = study.folder / "trials" / row.id
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return ModelConfig.parse(config["model"]), next(folder.rglob("model.safetensors"))


def test_only_designs_that_read_marks_are_told(study: Study) -> None:
    assert study.resolved.marks == BYTES == study.dataset.manifest.marks
    assert trained(study, "cascade")[0].marks == BYTES
    assert trained(study, "prenorm")[0].marks == Marks()


def test_the_trained_function_depends_on_the_marks(study: Study) -> None:
    config, weights = trained(study, "cascade")
    tokens = torch.tensor([[256, *b"Depth. Width? A"]])
    logits = []
    for marks in (config.marks, Marks()):
        model = Model.on_meta(config.model_copy(update={"marks": marks}))
        model.load_state_dict(load_file(weights), assign=True)
        logits.append(model(tokens)[0])
    assert torch.equal(logits[0][:7], logits[1][:7])
    assert (logits[0] - logits[1])[7:].abs().max() > 1e-4


def test_the_study_on_file_opens_with_its_marks(study: Study) -> None:
    config, out = study.resolved.study, study.folder.parent
    again = open_study(config, out, cache=study.dataset.folder.parent)
    assert again.resolved == study.resolved
    assert again.needed() == []
