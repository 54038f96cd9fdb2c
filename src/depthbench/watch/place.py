"""What a folder is that is watched: one run, or a study with its trials."""

from pathlib import Path
from typing import Any, Literal

from depthbench.config import Frozen
from depthbench.errors import DepthbenchError, nearest
from depthbench.study import compare, run
from depthbench.study.claim import LOCK
from depthbench.study.words import counted
from depthbench.train import status
from depthbench.train.metrics import METRICS
from depthbench.watch.needed import UNKNOWN, Needed
from depthbench.watch.tail import Tail
from depthbench.watch.view import CONFIG, Run, RunView

RESULTS = "results.jsonl"
TRIALS = "trials"
SIGNS = (METRICS, CONFIG, status.FILE, LOCK, "checkpoints")
"""One of them is in every folder that a run has begun in."""
MOST_SHOWN = 16


class View(Frozen):
    """All that is watched, at one moment."""

    folder: str
    kind: Literal["run", "study"]
    over: bool
    """Whether nothing more is to come."""
    reason: str | None
    """Why a study is over, if not because it is finished; None also while it goes on."""
    total: int | None
    """Trials of a study; None for a run, and where its config cannot be read."""
    finished: dict[str, int]
    """Trials of a study that have a result, by status."""
    left_out: int = 0
    """Results of an earlier config, which the study has no use for."""
    runs: tuple[RunView, ...]
    """The run; of a study, those that are under way, at most so many as can be read."""
    more: int = 0
    """Runs under way that are not among these."""


class Watched:
    """A folder that is looked at again and again."""

    def __init__(self, folder: Path) -> None:
        """Raises `DepthbenchError` for a folder that is neither a run nor a study."""
        self.folder, self.study = folder, _is_study(folder)
        self.results = Tail(folder / RESULTS)
        self.rows: dict[str, dict[str, Any]] = {}
        self.runs: dict[str, Run] = {}
        self.needed, self.share = Needed(folder), UNKNOWN
        if not self.study:
            self.alone = Run(folder, _row_of_trial(folder))

    def look(self) -> View:
        """As it is now."""
        if not self.study:
            one = self.alone.look()
            if not one.over and (row := _row_of_trial(self.folder)) is not None:
                self.alone.row = row
                one = self.alone.look()
            return self._view("run", one.over, None, (one,))
        records, others = self.results.read()
        if others:
            self.rows = {}
        for row in records:
            if "id" in row:
                self.rows[row["id"]] = row
        self.share = self.needed.of(self.rows)
        runs = tuple(view for run in self._open_trials() if not (view := run.look()).over)
        over, reason = self._end()
        return self._view("study", over and not runs, reason, runs)

    def _open_trials(self) -> list[Run]:
        """Trials that have begun and have no result, or failed and may be tried again."""
        begun = self.folder / TRIALS
        names = sorted(path.name for path in begun.iterdir()) if begun.is_dir() else []
        for name in names:
            row = self.rows.get(name)
            if row is None or row.get("status") == "failed":
                self.runs.setdefault(name, Run(begun / name)).row = row
            else:
                self.runs.pop(name, None)
        return list(self.runs.values())

    def _end(self) -> tuple[bool, str | None]:
        """Whether the study's own process has ended, and why if it was not at its end."""
        word = status.read_status(self.folder)
        if word is None:
            return self.share.missing == 0, None
        if word.state == "running":
            lost = "its process ended without a word. The same command goes on"
            return word.gone is True, lost if word.gone else None
        if word.state != "done":
            return True, word.state if word.reason is None else f"{word.state}: {word.reason}"
        if self.share.missing:
            missing = f"{counted(self.share.missing, 'trial')} of its config without a result"
            return True, f"{missing}. The same command trains the rest"
        return True, None

    def _view(
        self,
        kind: Literal["run", "study"],
        over: bool,
        reason: str | None,
        runs: tuple[RunView, ...],
    ) -> View:
        counts: dict[str, int] = {}
        own = self.share.ids
        rows = [row for name, row in self.rows.items() if own is None or name in own]
        for row in rows:
            state = str(row.get("status"))
            counts[state] = counts.get(state, 0) + 1
        return View(
            folder=str(self.folder),
            kind=kind,
            over=over,
            reason=reason,
            total=self.share.total,
            finished=counts,
            left_out=len(self.rows) - len(rows),
            runs=runs[:MOST_SHOWN],
            more=max(0, len(runs) - MOST_SHOWN),
        )


def _is_study(folder: Path) -> bool:
    if not folder.exists():
        siblings = [p.name for p in folder.parent.iterdir()] if folder.parent.is_dir() else []
        raise DepthbenchError(
            f"{folder}: no such folder{nearest(folder.name, siblings) or '.'} "
            "Name the folder of a run or a study, such as runs/run"
        )
    if not folder.is_dir():
        raise DepthbenchError(f"{folder} is a file. Name the folder of the run that holds it")
    if (folder / run.FILE).exists() or (folder / compare.FILE).exists():
        return True
    if any((folder / sign).exists() for sign in SIGNS):
        return False
    inside = sorted(path.name for path in folder.iterdir() if _shown(path))
    hint = (
        f"Name one of the folders in it, such as {folder / inside[0]}"
        if inside
        else ("Name the folder that depthbench train, run or compare writes to")
    )
    raise DepthbenchError(f"{folder} is neither a run nor a study: none has begun there. {hint}")


def _shown(path: Path) -> bool:
    return path.is_dir() and not path.name.startswith(".")


def _row_of_trial(folder: Path) -> dict[str, Any] | None:
    """The last result of a trial in the study that its folder lies in."""
    if folder.resolve().parent.name != TRIALS:
        return None
    found = None
    for row in Tail(folder.resolve().parents[1] / RESULTS).read()[0]:
        if row.get("id") == folder.resolve().name:
            found = row
    return found
