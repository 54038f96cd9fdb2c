"""Which results of a study's folder count, and how many it still lacks."""

from pathlib import Path

import tomli_w
from rich.console import Console

from depthbench.files import append_line
from depthbench.train.status import write_status
from depthbench.watch.place import MOST_SHOWN, Watched
from depthbench.watch.screen import picture
from tests.report.synthetic import resolved_study, rich_rows, without_none, write_study


def told(watched: Watched) -> str:
    console = Console(width=200)
    with console.capture() as caught:
        console.print(picture(watched.look()))
    return " ".join(caught.get().split())


def test_results_of_an_earlier_config_do_not_count(tmp_path: Path) -> None:
    """All sixty are there; then another seed is asked for instead of two of them."""
    folder = write_study(tmp_path / "study")
    watched = Watched(folder)
    view = watched.look()
    assert (view.total, view.over, view.reason, view.left_out) == (60, True, None, 0)
    assert view.finished == {"done": 56, "diverged": 3, "failed": 1}
    resolved = resolved_study()
    study = resolved.study.model_copy(update={"seeds": (0, 7)})
    later = resolved.model_copy(update={"study": study})
    toml = folder / "study.toml"
    toml.write_text(tomli_w.dumps(without_none(later.resolved())), encoding="utf-8")
    view = watched.look()
    # four designs at four shapes with seed 0, and three more rates of each search
    assert (view.total, sum(view.finished.values()), view.left_out) == (44, 28, 32)
    assert not view.over
    write_status(folder, "done")
    view = watched.look()
    assert (view.over, view.reason) == (
        True,
        "16 trials of its config without a result. The same command trains the rest",
    )
    assert "28 of 44 trials have a result" in told(watched)
    assert "32 of an earlier config left out" in told(watched)


def test_results_that_are_written_anew_replace_the_earlier(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", rich_rows()[:6])
    watched = Watched(folder)
    assert sum(watched.look().finished.values()) == 6
    lines = (folder / "results.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "new").write_text("".join(lines[:2]), encoding="utf-8")
    (folder / "new").replace(folder / "results.jsonl")
    assert sum(watched.look().finished.values()) == 2


def test_rows_of_another_version_all_count(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", [])
    append_line(folder / "results.jsonl", {"id": "a", "status": "done", "schema_version": 9})
    view = Watched(folder).look()
    assert (view.total, view.finished, view.over) == (60, {"done": 1}, False)


def test_runs_beyond_those_shown_are_counted(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", [])
    for number in range(MOST_SHOWN + 3):
        trial = folder / "trials" / f"{number:012}"
        trial.mkdir(parents=True)
        append_line(trial / "metrics.jsonl", {"step": 1, "tokens": 64, "train_loss": 5.0})
    view = Watched(folder).look()
    assert (len(view.runs), view.more) == (MOST_SHOWN, 3)
    assert f"{MOST_SHOWN + 3} under way" in told(Watched(folder))
    assert "… 3 more under way" in told(Watched(folder))
