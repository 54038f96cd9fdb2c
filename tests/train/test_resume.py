"""Checkpoints: a run that was broken off ends as one that was not, bit for bit (CASES 35, 38)."""

import errno
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from depthbench.data.dataset import Dataset
from depthbench.data.loss import LossSum
from depthbench.errors import DepthbenchError
from depthbench.train import checkpoint, team
from depthbench.train.loop import Trial
from depthbench.train.outcome import Outcome
from tests.small import trial_config

DESIGNS = ["prenorm", "hc", "attnres"]
RESTLESS = {"every": 3, "update_every": 1, "window": 10, "window_least": 5, "spike_z": 0.5}
RESTLESS |= {"norm_floor": 0.01}
"""Spikes within eight steps: health goes on from what a checkpoint holds."""


def make(dataset: Dataset, folder: Path, **changes: Any) -> Trial:
    settings = {"save_every": 2, "keep_last": 3, "health": RESTLESS} | changes
    return Trial(trial_config(dataset, **settings), dataset, folder)


def run(trial: Trial, steps: int = 1000, **options: Any) -> Outcome:
    """Train on, and wish to stop after ``steps`` more steps."""
    asked = iter(range(1, 1001))
    return trial.run(lambda *_: None, stop=lambda: next(asked) >= steps, **options)


def assert_same(folder: Path, other: Path) -> None:
    for name in ("metrics.jsonl", "health.json"):
        assert (folder / name).read_bytes() == (other / name).read_bytes(), name
    ends = [sorted((each / "checkpoints").iterdir())[-1] for each in (folder, other)]
    for name in ("model", "optimizer", "rng"):
        ours, theirs = (load_file(end / f"{name}.safetensors") for end in ends)
        assert ours.keys() == theirs.keys()
        for key, tensor in ours.items():
            assert torch.equal(tensor, theirs[key]), key


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("stopped", [1, 3, 5])
def test_stopped_and_continued_equals_undisturbed(
    design: str, stopped: int, dataset: Dataset, tmp_path: Path
) -> None:
    torch.rand(5)
    whole = run(make(dataset, tmp_path / "whole", design=design))
    torch.rand(7)
    first = run(make(dataset, tmp_path / "parts", design=design), stopped)
    assert (first.status, first.steps) == ("stopped", stopped)
    last = run(make(dataset, tmp_path / "parts", design=design), resume=True)
    assert_same(tmp_path / "parts", tmp_path / "whole")
    assert (last.status, last.domains) == ("done", whole.domains)
    assert last.final_train_loss == whole.final_train_loss


def test_killed_between_saves_loses_only_steps_since_the_last(
    dataset: Dataset, tmp_path: Path
) -> None:
    """Metrics of lost steps are there, and a torn line: they come anew, once."""
    run(make(dataset, tmp_path / "whole"))
    run(make(dataset, tmp_path / "killed"), 5)
    shutil.rmtree(tmp_path / "killed" / "checkpoints" / "step-000005")
    with (tmp_path / "killed" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "tok')
    trial = make(dataset, tmp_path / "killed")
    seen: list[int] = []
    trial.run(lambda steps, _: seen.append(steps), resume=True)
    assert seen[0] == 5
    assert_same(tmp_path / "killed", tmp_path / "whole")


def test_a_spike_goes_on(dataset: Dataset, tmp_path: Path) -> None:
    """Stopped at every step, so also before, in and after spikes."""
    changes = {"tokens": 64 * 14, "learning_rate": 0.1}
    run(make(dataset, tmp_path / "whole", **changes))
    for _ in range(13):
        assert run(make(dataset, tmp_path / "parts", **changes), 1, resume=True).status == "stopped"
    assert run(make(dataset, tmp_path / "parts", **changes), resume=True).status == "done"
    assert_same(tmp_path / "parts", tmp_path / "whole")
    told = (tmp_path / "parts" / "metrics.jsonl").read_text()
    assert '"until": null' in told
    assert '"until": 1' in told


def test_divergence_goes_on_counting(dataset: Dataset, tmp_path: Path) -> None:
    changes = {"learning_rate": 50.0, "divergence_patience": 4}
    whole = run(make(dataset, tmp_path / "whole", **changes))
    assert whole.status == "diverged"
    run(make(dataset, tmp_path / "parts", **changes), whole.steps - 1)
    last = run(make(dataset, tmp_path / "parts", **changes), resume=True)
    assert (last.status, last.steps, last.reason) == ("diverged", whole.steps, whole.reason)


def alter(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "altered weights": (lambda p: alter(p / "model.safetensors"), "model.safetensors is not what"),
    "altered optimizer": (
        lambda p: alter(p / "optimizer.safetensors"),
        "optimizer.safetensors is not what",
    ),
    "missing file": (lambda p: (p / "rng.safetensors").unlink(), "no whole checkpoint: No such"),
    "missing manifest": (lambda p: (p / "state.json").unlink(), "no whole checkpoint: No such"),
    "torn manifest": (
        lambda p: (p / "state.json").write_text('{"format": 1, "st'),
        "no whole checkpoint",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    damage: str, dataset: Dataset, tmp_path: Path
) -> None:
    run(make(dataset, tmp_path / "whole"))
    run(make(dataset, tmp_path / "hurt"), 5)
    act, words = DAMAGE[damage]
    act(tmp_path / "hurt" / "checkpoints" / "step-000005")
    outcome = run(make(dataset, tmp_path / "hurt"), resume=True)
    assert_same(tmp_path / "hurt", tmp_path / "whole")
    [note] = outcome.notes
    assert "step-000005" in note
    assert words in note
    assert "the one before it is used" in note


def test_what_a_killed_save_left_is_removed(dataset: Dataset, tmp_path: Path) -> None:
    run(make(dataset, tmp_path), 5)
    (tmp_path / "checkpoints" / ".unfinished-step-000006").mkdir()
    run(make(dataset, tmp_path), resume=True)
    assert names(tmp_path) == ["step-000005", "step-000006", "step-000008"]


def test_a_full_disk_is_told_and_harms_nothing(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(make(dataset, tmp_path / "whole"))
    run(make(dataset, tmp_path / "full"), 3)
    kept = names(tmp_path / "full")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(team, "save_file", full)
        message = "cannot write checkpoint .*step-000004: No space left.*step-000003 is whole"
        with pytest.raises(DepthbenchError, match=message):
            run(make(dataset, tmp_path / "full"), resume=True)
    assert names(tmp_path / "full") == kept
    run(make(dataset, tmp_path / "full"), resume=True)
    assert_same(tmp_path / "full", tmp_path / "whole")


def test_another_config_starts_anew_and_says_so(dataset: Dataset, tmp_path: Path) -> None:
    """Also when only the length of the schedule is another."""
    run(make(dataset, tmp_path / "old"), 5)
    longer = run(make(dataset, tmp_path / "old", tokens=1024), resume=True)
    run(make(dataset, tmp_path / "new", tokens=1024))
    assert "of another config" in longer.notes[0]
    assert_same(tmp_path / "old", tmp_path / "new")


def test_a_named_checkpoint_is_used_or_refused(dataset: Dataset, tmp_path: Path) -> None:
    run(make(dataset, tmp_path / "whole"))
    run(make(dataset, tmp_path / "parts"), 5)
    early = tmp_path / "parts" / "checkpoints" / "step-000002"
    outcome = make(dataset, tmp_path / "parts").run(lambda *_: None, resume=early)
    assert outcome.status == "done"
    assert_same(tmp_path / "parts", tmp_path / "whole")
    with pytest.raises(DepthbenchError, match="no whole checkpoint"):
        make(dataset, tmp_path / "parts").run(lambda *_: None, resume=tmp_path / "nowhere")
    other = tmp_path / "whole" / "checkpoints" / "step-000008"
    with pytest.raises(DepthbenchError, match="checkpoint of another config"):
        make(dataset, tmp_path / "parts", seed=1).run(lambda *_: None, resume=other)


def test_without_resume_everything_starts_anew(dataset: Dataset, tmp_path: Path) -> None:
    run(make(dataset, tmp_path / "a"), 5)
    run(make(dataset, tmp_path / "a"))
    run(make(dataset, tmp_path / "b"))
    assert_same(tmp_path / "a", tmp_path / "b")


def test_the_last_and_the_best_are_kept(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of validations after steps 2, 4, 6 and 8; the second is the least."""
    nats = iter([4.0, 2.0, 3.0, 2.5])
    loss = {"words": LossSum(nats=1.0, tokens=1, bytes=1)}

    def evaluate(_: Trial) -> dict[str, LossSum]:
        return {name: replace(part, nats=next(nats)) for name, part in loss.items()}

    monkeypatch.setattr(Trial, "evaluate", evaluate)
    run(make(dataset, tmp_path, evaluations=4, keep_last=1, keep_best=True))
    assert names(tmp_path) == ["step-000004", "step-000008"]


def test_the_manifest_says_what_belongs_to_it(dataset: Dataset, tmp_path: Path) -> None:
    trial = make(dataset, tmp_path)
    run(trial)
    manifest = checkpoint.read(tmp_path / "checkpoints" / "step-000008").manifest
    assert manifest.step == 8
    assert manifest.config == trial.config.id
    assert set(manifest.files) == {f"{n}.safetensors" for n in ("model", "optimizer", "rng")}
    assert set(manifest.versions) == {"depthbench", "torch"}


def test_parts_of_a_batch_give_the_whole_batchs_step(dataset: Dataset, tmp_path: Path) -> None:
    """Sums of float32 gradients in another order."""
    whole, parts = (make(dataset, tmp_path / str(size), micro_sequences=size) for size in (None, 2))
    for step in range(3):
        one, other = whole.learner.step(step), parts.learner.step(step)
        assert other.loss == pytest.approx(one.loss, rel=1e-5)
        assert other.grad_norm == pytest.approx(one.grad_norm, rel=1e-4)
    for a, b in zip(
        whole.learner.model.parameters(), parts.learner.model.parameters(), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=2e-5)


def test_parts_must_divide_the_batch(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(DepthbenchError, match=r"sequences = 4 .*micro_sequences = 3"):
        make(dataset, tmp_path, micro_sequences=3)


def test_an_altered_manifest_is_named_and_skipped(dataset: Dataset, tmp_path: Path) -> None:
    """Each of: a changed state, an empty one, no files, another step."""
    make(dataset, tmp_path / "run", save_every=2, keep_last=4).run(lambda *_: None)
    folder = tmp_path / "run" / "checkpoints"
    path = folder / "step-000008" / "state.json"
    good = json.loads(path.read_text())
    changes = ({"state": good["state"] | {"loss": 1.0}}, {"state": {}}, {"files": {}}, {"step": 7})
    for change in changes:
        path.write_text(json.dumps(good | change))
        found, notes = checkpoint.newest(folder, good["config"])
        assert found is not None
        assert found.manifest.step == 6
        assert "state.json is not what was written" in notes[0]


def test_a_millionth_step_is_later_than_the_one_before(tmp_path: Path) -> None:
    for step in (999_998, 999_999, 1_000_000):
        checkpoint.save(tmp_path, step, "config", {"model": {"w": torch.ones(1)}}, {})
    checkpoint.prune(tmp_path, 2, None)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-1000000", "step-999999"]
    found, _ = checkpoint.newest(tmp_path, "config")
    assert found is not None
    assert found.manifest.step == 1_000_000


def test_going_back_to_a_named_checkpoint_drops_what_came_after(
    dataset: Dataset, tmp_path: Path
) -> None:
    """Stopped on the way, the same command goes on from there: nothing is missing."""
    settings: dict[str, Any] = {"save_every": 2, "keep_last": 4}
    whole = make(dataset, tmp_path / "whole", **settings)
    whole.run(lambda *_: None)
    folder = tmp_path / "run"
    make(dataset, folder, **settings).run(lambda *_: None)
    back = make(dataset, folder, **settings)
    named = folder / "checkpoints" / "step-000002"
    assert back.run(lambda *_: None, resume=named, stop=lambda: back.done == 3).status == "stopped"
    assert names(folder) == ["step-000002", "step-000003"]
    end = make(dataset, folder, **settings).run(lambda *_: None, resume=True)
    assert end.notes == []
    metrics = "metrics.jsonl"
    assert (folder / metrics).read_bytes() == (tmp_path / "whole" / metrics).read_bytes()


def test_metrics_that_are_gone_are_told(dataset: Dataset, tmp_path: Path) -> None:
    first = make(dataset, tmp_path)
    first.run(lambda *_: None, stop=lambda: first.done == 4)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines(keepends=True)
    assert len(lines) == 4
    (tmp_path / "metrics.jsonl").write_text("".join(lines[:1] + lines[3:]))
    second = make(dataset, tmp_path)
    outcome = second.run(lambda *_: None, resume=True, stop=lambda: second.done == 6)
    assert outcome.notes == ["metrics.jsonl holds 2 of the 4 records of the first 4 steps"]


@pytest.mark.parametrize("change", [{"step": "4"}, {"train_loss": "abc"}, {"tokens": None}])
def test_a_record_that_is_none_is_named(
    dataset: Dataset, tmp_path: Path, change: dict[str, Any]
) -> None:
    first = make(dataset, tmp_path)
    first.run(lambda *_: None, stop=lambda: first.done == 4)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    lines[2] = json.dumps(json.loads(lines[2]) | change)
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(
        DepthbenchError, match=rf"record 3: {next(iter(change))} = .*--resume never"
    ):
        make(dataset, tmp_path).run(lambda *_: None, resume=True)
