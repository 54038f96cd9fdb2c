"""A study's parametrization reaches every trial, and is refused before any training."""

from pathlib import Path

import pytest

from depthbench.errors import DepthbenchError
from depthbench.study.config import StudyConfig
from depthbench.study.plan import plan, resolve
from tests.small import study_config, study_tables

COMPLETE = {"kind": "completep", "base_layers": 1, "base_width": 16, "scope": "depth"}


def test_every_trial_has_it(tmp_path: Path) -> None:
    study = study_config(tmp_path / "words.txt", parametrization=COMPLETE)
    trials = plan(resolve(study, "hash", vocab=257), [])
    assert trials
    assert all(trial.config.model.parametrization == study.parametrization for trial in trials)
    plain = plan(resolve(study_config(tmp_path / "words.txt"), "hash", vocab=257), [])
    assert {trial.id for trial in trials}.isdisjoint(trial.id for trial in plain)


def test_refused_before_any_trial(tmp_path: Path) -> None:
    study = study_config(tmp_path / "words.txt", parametrization=COMPLETE, designs=["sandwich"])
    with pytest.raises(DepthbenchError, match="design 'sandwich' norms or weighs"):
        resolve(study, "hash", vocab=257)
    wide = COMPLETE | {"scope": "depth_width", "base_head_dim": 64}
    study = study_config(tmp_path / "words.txt", parametrization=wide)
    with pytest.raises(DepthbenchError, match=r"base_head_dim = 64, .* 8 wide"):
        resolve(study, "hash", vocab=257)


def test_a_misspelt_kind_is_refused(tmp_path: Path) -> None:
    tables = study_tables(tmp_path / "words.txt", parametrization={"kind": "complete"})
    with pytest.raises(DepthbenchError, match=r"parametrization.kind = 'complete'"):
        StudyConfig.parse(tables)
