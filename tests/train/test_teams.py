"""Several processes train what one does, to the rounding of float32."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from depthbench.data.dataset import Dataset
from depthbench.designs import REGISTRY
from depthbench.errors import DepthbenchError
from depthbench.train import checkpoint
from depthbench.train.group import joined
from depthbench.train.load import load_trial
from depthbench.train.loop import Trial
from depthbench.train.team import Solo
from tests.small import trial_config
from tests.train.teams import job, metrics_of, train_together

NAMED = ("prenorm", "hc", "mhc", "attnres", "moda")
"""The designs that the issue names."""
CLOSE = 3e-6
"""Relative: sums of float32 over a batch in another order, carried through eight steps."""


def train_alone(dataset: Dataset, folder: Path, **changes: Any) -> list[dict[str, Any]]:
    Trial(trial_config(dataset, **changes), dataset, folder).run(lambda *_: None)
    return metrics_of(folder)


def assert_same(ours: list[dict[str, Any]], alone: list[dict[str, Any]], close: float) -> None:
    """Step by step: loss, gradient norm and rate; validation and health where they stand."""
    assert [one["step"] for one in ours] == [one["step"] for one in alone]
    for one, other in zip(ours, alone, strict=True):
        assert_close(one, other, close, f"step {one['step']}")


def assert_close(one: Any, other: Any, close: float, where: str) -> None:
    if isinstance(other, dict):
        assert one.keys() == other.keys(), where
        for key, value in other.items():
            assert_close(one[key], value, close, f"{where} {key}")
    elif isinstance(other, list):
        assert len(one) == len(other), where
        for number, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_close(a, b, close, f"{where} {number}")
    elif isinstance(other, float):
        # what is left of a sum that is 1 is rounding
        least = 1e-6 if "mixing" in where else 1e-12
        assert math.isclose(one, other, rel_tol=close, abs_tol=least), (where, one, other)
    else:
        assert one == other, where


ROUTED = {"name": "moe", "experts": 4, "top_k": 2, "balance_weight": 0.0, "z_weight": 0.1}
"""The balance loss is no mean over tokens: each process balances its own."""
QUICK: dict[str, dict[str, Any]] = {
    "prenorm": {"design": "prenorm"},
    "attnres": {"design": "attnres"},
    "moe": {"design": "prenorm", "backbone": ROUTED},
}


@pytest.mark.slow
def test_two_processes_train_as_one(dataset: Dataset, tmp_path: Path) -> None:
    jobs = [job(dataset, name, **one) for name, one in QUICK.items()]
    for strategy in ("ddp", "fsdp"):
        results = train_together(tmp_path / strategy, strategy, 2, jobs)
        for name, one in QUICK.items():
            alone = train_alone(dataset, tmp_path / "alone" / name, **one)
            assert_same(metrics_of(tmp_path / strategy / name), alone, CLOSE)
            assert results[name]["notes"][0].startswith("trained by 2 processes (the model ")


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize("processes", [2, 4])
def test_every_design_trains_as_in_one_process(
    strategy: str, processes: int, dataset: Dataset, tmp_path: Path
) -> None:
    """The named designs with gradient accumulation and recomputation, the others as they are."""
    hard = {"sequences": 8, "tokens": 1024, "micro_sequences": 4, "checkpointing": True}
    changes: dict[str, dict[str, Any]] = {name: {"design": name} for name in REGISTRY}
    changes |= {f"{name}, hard": {"design": name, **hard} for name in NAMED}
    changes |= {"hybrid": {"design": "hc", "backbone": "hybrid"}}
    changes |= {"moe": {"design": "attnres", "backbone": ROUTED}}
    changes |= {"tied": {"design": "mhc", "backbone": {"name": "dense", "tied_head": True}}}
    jobs = [job(dataset, name, **one) for name, one in changes.items()]
    train_together(tmp_path / "team", strategy, processes, jobs)
    for name, one in changes.items():
        alone = train_alone(dataset, tmp_path / "alone" / name, **one)
        assert_same(metrics_of(tmp_path / "team" / name), alone, 30 * CLOSE)


@pytest.mark.slow
def test_a_checkpoint_goes_on_in_another_number_of_processes(
    dataset: Dataset, tmp_path: Path
) -> None:
    """In parts by four, in parts by two, whole by two, then alone: as never interrupted."""
    for design in NAMED:
        alone = train_alone(dataset, tmp_path / "alone" / design, design=design)
        for stop, strategy, processes in ((2, "fsdp", 4), (4, "fsdp", 2), (6, "ddp", 2)):
            one = job(dataset, design, stop=stop, design=design)
            result = train_together(tmp_path / "team", strategy, processes, [one])
            assert result[design]["status"] == "stopped"
        folder = tmp_path / "team" / design
        trial = Trial(trial_config(dataset, design=design), dataset, folder)
        assert trial.run(lambda *_: None, resume=True).status == "done"
        assert_same(metrics_of(folder), alone, CLOSE)


@pytest.mark.slow
def test_parts_written_by_four_are_what_one_process_saved(dataset: Dataset, tmp_path: Path) -> None:
    """From one process's file to parts in four, written by them and read by one: bit for bit."""
    for design in ("hc", "rezero"):
        config = trial_config(dataset, design=design)
        Trial(config, dataset, tmp_path / design).run(lambda *_: None)
        again = job(dataset, design, design=design) | {"again": f"{design} again"}
        train_together(tmp_path, "fsdp", 4, [again])
        one, other = (
            checkpoint.last(tmp_path / name / "checkpoints") for name in (design, f"{design} again")
        )
        assert one is not None
        assert other is not None
        assert one.parts("model") is None
        assert other.parts("model") is not None
        for name in ("model", "optimizer"):
            expected, found = one.tensors(name), other.tensors(name)
            assert expected.keys() == found.keys()
            for key, tensor in expected.items():
                assert torch.equal(found[key], tensor), key
        model, _ = load_trial(tmp_path / design)
        (tmp_path / f"{design} again" / "config.json").write_text(config.model_dump_json())
        whole, _ = load_trial(tmp_path / f"{design} again")
        tokens = dataset.batch(0, 0, 2, 16)[0]
        with torch.no_grad():
            assert torch.equal(model(tokens), whole(tokens))


@pytest.mark.slow
def test_an_altered_part_is_named(dataset: Dataset, tmp_path: Path) -> None:
    train_together(tmp_path, "fsdp", 2, [job(dataset, "prenorm")])
    folder = tmp_path / "prenorm" / "checkpoints" / "step-000008"
    part = sorted((folder / "model").glob("*.safetensors"))[0]
    data = bytearray(part.read_bytes())
    data[-1] ^= 1
    part.write_bytes(bytes(data))
    with pytest.raises(DepthbenchError, match=rf"was altered: model/{part.name}"):
        load_trial(tmp_path / "prenorm")


def test_rows_of_a_team_cover_the_batch() -> None:
    """Six parts of four, by two processes: each row once, equal shares of every part."""
    teams = [Solo(), Solo()]
    for rank, team in enumerate(teams):
        team.rank, team.size = rank, 2
    rows = [team.rows(24, 4) for team in teams]
    assert rows[0][:4] == [0, 1, 4, 5]
    assert rows[1][:4] == [2, 3, 6, 7]
    assert sorted(rows[0] + rows[1]) == list(range(24))
    with pytest.raises(DepthbenchError, match=r"3 sequences cannot be shared by 2 processes"):
        teams[0].rows(24, 3)


def test_rows_of_a_batch_are_its_rows(dataset: Dataset) -> None:
    whole = dataset.batch(3, 5, sequences=6, length=8)
    own = dataset.batch(3, 5, sequences=6, length=8, rows=[4, 1])
    assert all(torch.equal(part, full[[4, 1]]) for part, full in zip(own, whole, strict=True))


def test_an_unknown_strategy_is_refused() -> None:
    with (
        pytest.raises(DepthbenchError, match=r"parallel.*'fsd'.*fsdp"),
        joined("fsd", "cpu"),
    ):
        pass
