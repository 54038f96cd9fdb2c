"""`train.compile`: the same losses, few graphs, and a failure that is told and changes nothing."""

from typing import final

import pytest
import torch

from depthbench.data.dataset import Dataset
from depthbench.errors import DepthbenchError
from depthbench.nn.compiled import Compiler
from depthbench.nn.model import Model, ModelConfig
from depthbench.train.step import Learner
from depthbench.train.team import Team
from tests.small import trial_config
from tests.train.compiled import trained

GROWS = "compile: branches alone, for the state grows with depth"


def test_losses_are_those_of_eager_training() -> None:
    """Also recomputed under autocast, whose nesting a graph left halfway would not undo."""
    found = trained(
        "counting",
        "design=attnres,checkpointing=true,micro_sequences=2",
        "design=hc,backbone=hybrid,checkpointing=true,dtype=bfloat16",
        "design=prenorm,backbone=moe,dtype=bfloat16",
    )
    assert [one["graphs"] for one in found] == [2, 1, 1]
    assert [one["notes"] for one in found] == [[GROWS], [], []]
    for one, rounding in zip(found, (1e-6, 2e-3, 2e-3), strict=True):
        assert one["eager"][-1] < one["eager"][0] - 0.5
        assert one["compiled"] == pytest.approx(one["eager"], rel=rounding)


def test_a_failing_compiler_is_told_and_changes_no_loss() -> None:
    [found] = trained("failing", "design=attnres")
    grows, failed = found["notes"]
    assert grows == GROWS
    assert failed.startswith("compile: torch's compiler failed, nothing is compiled (backend=")
    assert failed.endswith("raised: RuntimeError: no compiler here)")
    assert found["compiled"] == found["eager"]


@final
class Pair(Team):
    """The first of two processes, as far as a step that never ends needs to know."""

    size = 2

    def build(self, config: ModelConfig, seed: int, device: torch.device) -> Model:
        return Model.build(config, seed, device)

    def forward_of(self, model: Model) -> Model:
        return model


def test_a_team_does_not_go_on_without(dataset: Dataset) -> None:
    """One process alone would leave the others waiting."""

    def fail(graph: object, inputs: object) -> None:
        raise RuntimeError("no compiler here")

    learner = Learner(trial_config(dataset, compile=True), dataset, Pair())
    learner.model.compiler = Compiler(fail)
    with pytest.raises(DepthbenchError) as caught:
        learner.step(0)
    text = str(caught.value)
    assert text.startswith("train.compile = true: torch's compiler failed (")
    assert text.endswith("). Use train.compile=false")
    assert "\n" not in text
