"""Studies on other backbones: counted, solved, resolved and planned on the backbone they name."""

from pathlib import Path
from typing import Any

import pytest

from depthbench.config import override
from depthbench.nn.count import Parameters, count_parameters
from depthbench.nn.hybrid import HybridBackbone
from depthbench.nn.model import ModelConfig
from depthbench.nn.moe import MoEBackbone
from depthbench.solve import solve_shapes
from depthbench.study.config import StudyConfig
from depthbench.study.plan import plan, resolve
from tests.small import study_config, study_tables

TEXT = Path("words.txt")


@pytest.mark.parametrize("backbone", ["moe", {"name": "hybrid", "expand": 2}])
def test_a_budget_is_met_on_the_studys_backbone(backbone: Any) -> None:
    shapes = {"params": "80k", "depths": [4], "tolerance": 0.02}
    study = resolve(study_config(TEXT, shapes=shapes, backbone=backbone), "hash", 257)
    for design in study.study.designs:
        [shape] = study.shapes[design.name]
        parts = {"shape": shape, "design": design}
        here = count_parameters(ModelConfig.parse(parts | {"backbone": backbone}))
        assert here.total == pytest.approx(80_000, rel=0.02)
        assert here.total > 1.1 * count_parameters(ModelConfig.parse(parts)).total
    assert {one.config.model.backbone for one in plan(study, [])} == {study.study.backbone}


def test_solved_parameters_are_those_of_the_backbone() -> None:
    (solved,) = solve_shapes("300k", depths=[3], backbone={"name": "moe", "experts": 4})
    config = {"shape": solved.shape, "design": "prenorm", "backbone": {"name": "moe", "experts": 4}}
    assert solved.parameters == count_parameters(ModelConfig.parse(config))
    assert solved.parameters.active < 0.8 * solved.parameters.total


def test_overrides_name_a_backbone_and_its_settings() -> None:
    tables = override(study_tables(TEXT), ["backbone.name=moe", "backbone.experts=4"])
    assert StudyConfig.parse(tables).backbone == MoEBackbone(experts=4)
    tables = override(study_tables(TEXT), ["backbone=hybrid"])
    assert StudyConfig.parse(tables).backbone == HybridBackbone()


@pytest.mark.parametrize("backbone", ["moe", {"name": "hybrid", "chunk": 16}])
def test_a_study_and_its_trials_survive_their_own_resolved_form(backbone: Any) -> None:
    config = study_config(TEXT, backbone=backbone)
    again = StudyConfig.parse(config.resolved())
    assert again == config
    assert type(again.backbone) is type(config.backbone)
    trial = plan(resolve(config, "hash", 257), [])[0].config
    assert type(trial).parse(trial.resolved()).id == trial.id
    assert trial.id != plan(resolve(study_config(TEXT), "hash", 257), [])[0].id


def test_rows_from_before_routers_used_all_their_parameters() -> None:
    counts = {"total": 10, "backbone": 6, "embedding_and_head": 3, "own": 1}
    assert Parameters.parse(counts).active == 10
    assert Parameters.parse(counts | {"active": 7}).active == 7
