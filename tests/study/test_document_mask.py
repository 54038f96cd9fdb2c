"""``train.document_mask``: training, validation and the loaded model keep documents apart."""

from pathlib import Path
from typing import Any

import pytest
import torch

from depthbench.data.dataset import Dataset, prepare
from depthbench.errors import DepthbenchError
from depthbench.marks import Marks
from depthbench.study.plan import resolve
from depthbench.train.config import TrialConfig
from depthbench.train.load import load_trial
from depthbench.train.loop import Trial
from tests.small import study_config, trial_config

SIZES = {"sizes": [{"layers": 1, "width": 16, "heads": 2, "ffn": 24}]}


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Documents that are shorter than a sequence."""
    for number in range(60):
        (tmp_path / "text").mkdir(exist_ok=True)
        (tmp_path / "text" / f"{number}.txt").write_text(f"depth {number} of {60 - number}. ")
    study = study_config(tmp_path / "text")
    return prepare(study.data, tmp_path / "cache")


def masked(dataset: Dataset, **changes: Any) -> TrialConfig:
    config = trial_config(dataset, **changes)
    marks = dataset.manifest.marks
    return config.model_copy(update={"model": config.model.model_copy(update={"marks": marks})})


@pytest.mark.parametrize("backbone", ["dense", "hybrid"])
def test_a_masked_trial(dataset: Dataset, tmp_path: Path, backbone: str) -> None:
    losses = {}
    for mask in (False, True):
        config = masked(dataset, backbone=backbone, document_mask=mask)
        trial = Trial(config, dataset, tmp_path / str(mask))
        outcome = trial.run(lambda steps, tokens: None)
        losses[mask] = outcome.domains["text"].nats_per_token
        model, _ = load_trial(tmp_path / str(mask))
        inputs = trial.validation["text"].inputs
        assert (inputs[:, 1:] == 256).any()
        with torch.no_grad():
            torch.testing.assert_close(model(inputs), trial.learner.model(inputs))
        assert model.documents_apart == mask
    assert losses[True] != losses[False]


def test_the_plan_tells_the_document_token(dataset: Dataset, tmp_path: Path) -> None:
    marks = Marks(document=256)
    for mask in (False, True):
        study = study_config(tmp_path / "text", designs=["prenorm"], shapes=SIZES)
        train = study.train.model_copy(update={"document_mask": mask})
        study = study.model_copy(update={"train": train})
        resolved = resolve(study, "0" * 16, 257, marks)
        trial = resolved.trial(study.designs[0], resolved.shapes["prenorm"][0], 1e-2, 0)
        assert trial.model.marks == (marks if mask else Marks())
        assert trial.train.document_mask == mask


def test_what_cannot_restart_is_refused_before_training(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    study = study_config(
        tmp_path / "text", designs=[{"name": "momentum", "over": "segments"}], shapes=SIZES
    )
    train = study.train.model_copy(update={"document_mask": True})
    study = study.model_copy(update={"train": train})
    with pytest.raises(DepthbenchError, match="momentum with over"):
        resolve(study, "0" * 16, 257, Marks(document=256))
