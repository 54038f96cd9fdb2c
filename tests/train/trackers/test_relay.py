"""What a tracker hears: every record once, numbers only, and nothing of it reaches training."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from depthbench.data.dataset import Dataset
from depthbench.errors import DepthbenchError
from depthbench.files import read_lines
from depthbench.train.loop import Trial
from depthbench.train.outcome import Outcome
from depthbench.train.trackers import REGISTRY, listeners, parse_trackers
from depthbench.train.trackers.base import TrackedRun, Tracker
from depthbench.train.trackers.relay import Relay, flatten
from tests.small import make_dataset, trial_config


class Notebook(Tracker):
    """Keeps what it hears, over several runs; may fail on purpose."""

    name = "notebook"
    rewinds = False

    def __init__(self, fails_at: int | str | None = None, holds: int | None = None) -> None:
        self.fails_at, self.holds = fails_at, holds
        self.runs: list[TrackedRun] = []
        self.heard: list[tuple[int, dict[str, float]]] = []
        self.ends: list[Outcome] = []

    @classmethod
    def check(cls) -> None: ...

    def open(self, run: TrackedRun) -> int | None:
        if self.fails_at == "open":
            raise ConnectionError("no\nnetwork")
        self.runs.append(run)
        return self.holds

    def log(self, step: int, values: dict[str, float]) -> None:
        if step == self.fails_at:
            raise OSError(28, "No space left on device")
        self.heard.append((step, values))

    def close(self, outcome: Outcome) -> None:
        if self.fails_at == "close":
            raise RuntimeError("cannot upload")
        self.ends.append(outcome)

    @property
    def steps(self) -> list[int]:
        return [step for step, _ in self.heard]


class Rewinding(Notebook):
    """One that takes back what lies behind the step at which it is opened."""

    rewinds = True


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_dataset(tmp_path_factory.mktemp("trackers"))


def train(
    dataset: Dataset, folder: Path, trackers: list[Notebook], steps: int = 99, resume: bool = True
) -> Outcome:
    asked = iter(range(1, 100))
    config = trial_config(dataset, save_every=3)
    trial = Trial(config, dataset, folder, [Relay(tracker) for tracker in trackers])
    return trial.run(lambda *_: None, stop=lambda: next(asked) >= steps, resume=resume)


def break_off(folder: Path, step: int) -> None:
    """As SIGKILL some steps behind the checkpoint of ``step`` leaves it."""
    for path in (folder / "checkpoints").iterdir():
        if int(path.name.removeprefix("step-")) > step:
            for one in path.iterdir():
                one.unlink()
            path.rmdir()


def test_numbers_of_a_record_by_path() -> None:
    record = {
        "step": 3,
        "train_loss": None,
        "good": True,
        "loss": {"bits": 1.5},
        "health": {"norm": [0.5, None, 2.0], "share": [[0.25], [0.75]]},
        "word": "x",
    }
    assert flatten(record) == {
        "step": 3,
        "loss/bits": 1.5,
        "health/norm/0": 0.5,
        "health/norm/2": 2.0,
        "health/share/0/0": 0.25,
        "health/share/1/0": 0.75,
    }


def test_every_record_is_heard_as_it_is_written(dataset: Dataset, tmp_path: Path) -> None:
    book = Notebook()
    outcome = train(dataset, tmp_path / "run", [book])
    written = read_lines(tmp_path / "run" / "metrics.jsonl")
    times = read_lines(tmp_path / "run" / "timing.jsonl")
    assert len(book.heard) == len(written) == 8
    for (step, values), record, timing in zip(book.heard, written, times, strict=True):
        assert step == record["step"] == timing["step"]
        expected = flatten(record | {"timing": timing})
        assert values == {k: v for k, v in expected.items() if not k.endswith("step")}
        assert values["train_loss"] == record["train_loss"]
        assert values["timing/tokens_per_second"] == timing["tokens_per_second"]
    [run] = book.runs
    assert (run.step, run.before, run.group) == (0, False, "run")
    assert run.config == json.loads((tmp_path / "run" / "config.json").read_text())
    assert book.ends == [outcome]
    assert outcome.notes == []


@pytest.mark.parametrize("kind", [Notebook, Rewinding])
@pytest.mark.parametrize("stopped", [3, 5])
def test_a_run_that_goes_on_is_one_run_with_each_step_once(
    kind: type[Notebook], stopped: int, dataset: Dataset, tmp_path: Path
) -> None:
    first, second = kind(), kind()
    train(dataset, tmp_path, [first], stopped)
    train(dataset, tmp_path, [second])
    assert first.steps + second.steps == list(range(1, 9))
    assert first.runs[0].id == second.runs[0].id
    assert (second.runs[0].step, second.runs[0].before) == (stopped, True)


def test_after_a_kill_steps_that_are_made_again_are_not_sent_again(
    dataset: Dataset, tmp_path: Path
) -> None:
    first, second = Notebook(), Notebook()
    train(dataset, tmp_path, [first], 5)
    break_off(tmp_path, 3)
    train(dataset, tmp_path, [second])
    # steps 4 and 5 were made twice, with the same numbers
    assert (first.steps, second.steps) == ([1, 2, 3, 4, 5], [6, 7, 8])
    assert second.runs[0].step == 3


def test_a_tracker_that_rewinds_hears_them_again(dataset: Dataset, tmp_path: Path) -> None:
    first, second = Rewinding(), Rewinding()
    train(dataset, tmp_path, [first], 5)
    break_off(tmp_path, 3)
    train(dataset, tmp_path, [second])
    assert (first.steps, second.steps) == ([1, 2, 3, 4, 5], [4, 5, 6, 7, 8])
    assert [values["train_loss"] for _, values in first.heard[3:]] == [
        values["train_loss"] for _, values in second.heard[:2]
    ]


def test_a_tool_that_lost_records_gets_them_again(dataset: Dataset, tmp_path: Path) -> None:
    train(dataset, tmp_path, [Notebook()], 5)
    second = Notebook(holds=2)
    train(dataset, tmp_path, [second])
    assert second.steps == [3, 4, 5, 6, 7, 8]


def test_a_tracker_that_comes_later_hears_the_beginning_too(
    dataset: Dataset, tmp_path: Path
) -> None:
    train(dataset, tmp_path, [], 5)
    late = Notebook()
    train(dataset, tmp_path, [late])
    assert late.steps == list(range(1, 9))
    assert (late.runs[0].step, late.runs[0].before) == (5, False)


def test_starting_over_is_another_run(dataset: Dataset, tmp_path: Path) -> None:
    first, second, elsewhere = Notebook(), Notebook(), Notebook()
    train(dataset, tmp_path / "a", [first], 5)
    train(dataset, tmp_path / "a", [second], resume=False)
    train(dataset, tmp_path / "b", [elsewhere])
    assert second.steps == list(range(1, 9))
    ids = {book.runs[0].id for book in (first, second, elsewhere)}
    assert len(ids) == 3
    assert len({one.rpartition("-")[0].partition("-")[0] for one in ids}) == 1


def test_trials_of_a_study_belong_to_its_group(dataset: Dataset, tmp_path: Path) -> None:
    book = Notebook()
    train(dataset, tmp_path / "pocket" / "trials" / "0123456789ab", [book])
    assert book.runs[0].group == "pocket"


@pytest.mark.parametrize(
    ("fails_at", "words", "heard"),
    [
        ("open", "--log notebook ended after step 0: ConnectionError: no network", []),
        (
            4,
            "--log notebook ended after step 3: OSError: [Errno 28] No space left on device",
            [1, 2, 3],
        ),
        ("close", "--log notebook ended after step 8: RuntimeError: cannot upload", [*range(1, 9)]),
    ],
)
def test_a_failure_is_noted_once_and_changes_nothing(
    fails_at: int | str,
    words: str,
    heard: list[int],
    dataset: Dataset,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    plain = train(dataset, tmp_path / "plain", [])
    broken, sound = Notebook(fails_at), Notebook()
    with caplog.at_level(logging.WARNING):
        outcome = train(dataset, tmp_path / "logged", [broken, sound])
    assert outcome.notes == [words]
    assert [record.getMessage() for record in caplog.records] == [words]
    assert broken.steps == heard
    assert sound.steps == list(range(1, 9))
    assert (outcome.status, outcome.final_train_loss) == (plain.status, plain.final_train_loss)
    ours, theirs = (tmp_path / name / "metrics.jsonl" for name in ("plain", "logged"))
    assert ours.read_bytes() == theirs.read_bytes()
    last = "checkpoints/step-000008/model.safetensors"
    weights = load_file(tmp_path / "logged" / last)
    for name, tensor in load_file(tmp_path / "plain" / last).items():
        assert torch.equal(tensor, weights[name])


def test_what_failed_once_is_made_good_when_the_run_goes_on(
    dataset: Dataset, tmp_path: Path
) -> None:
    train(dataset, tmp_path, [Notebook(3)], 5)
    second = Notebook()
    train(dataset, tmp_path, [second])
    assert second.steps == [3, 4, 5, 6, 7, 8]


def test_an_unreadable_mark_starts_over(dataset: Dataset, tmp_path: Path) -> None:
    train(dataset, tmp_path, [Notebook()], 5)
    (tmp_path / "trackers" / "notebook.json").write_text("{")
    second = Notebook()
    train(dataset, tmp_path, [second])
    assert second.steps == list(range(1, 9))


def test_names_are_checked_before_training() -> None:
    assert parse_trackers(None) == ()
    assert parse_trackers("tensorboard, tensorboard") == ("tensorboard",)
    with pytest.raises(DepthbenchError, match="unknown tracker 'tensorbord', did you mean"):
        parse_trackers("tensorbord")
    for empty in ("", "tensorboard,"):
        with pytest.raises(DepthbenchError, match="unknown tracker ''"):
            parse_trackers(empty)


def test_what_is_registered_is_called_what_it_says() -> None:
    assert all(name == kind.name for name, kind in REGISTRY.items())
    [relay] = listeners(["tensorboard"])
    assert isinstance(relay.tracker, REGISTRY["tensorboard"])


@pytest.mark.parametrize("name", list(REGISTRY))
def test_a_package_that_is_missing_is_named_with_its_extra(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages: dict[str, Any] = {
        "tensorboard": "tensorboard.summary.writer.record_writer",
        "wandb": "wandb",
        "trackio": "trackio",
    }
    # what Python itself does for a package that cannot be imported
    monkeypatch.setitem(__import__("sys").modules, packages[name], None)
    with pytest.raises(DepthbenchError) as missing:
        parse_trackers(name)
    assert f"pip install 'depthbench[{name}]'" in str(missing.value)
    assert "\n" not in str(missing.value)
