"""Which results a study or comparison asks for, and which lie there of an earlier config."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from depthbench.config import read_toml
from depthbench.errors import DepthbenchError
from depthbench.study import compare, run
from depthbench.study.plan import ResolvedStudy, belonging, missing_trials
from depthbench.study.store import Row

Rows = Mapping[str, dict[str, Any]]
"""As they stand in ``results.jsonl``, by id."""


class Share(NamedTuple):
    """What of the rows belongs; None where a file cannot be read that tells it."""

    total: int | None
    """Trials in all."""
    ids: set[str] | None
    """Of the rows that belong."""
    missing: int | None
    """Trials that have no row yet."""


UNKNOWN = Share(None, None, None)


class Needed:
    """Read again when the config or the rows are others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mark: object = None
        self._share = UNKNOWN

    def of(self, rows: Rows) -> Share:
        """For the config as it is now."""
        mark = [_mark_of(self.folder / name) for name in (compare.FILE, run.FILE)], dict(rows)
        if mark != self._mark:
            self._mark, self._share = mark, self._read(rows)
        return self._share

    def _read(self, rows: Rows) -> Share:
        try:
            resolved = compare.read_resolved(self.folder)
            if resolved is not None:
                return _of_comparison(resolved.compare, rows)
            study = ResolvedStudy.parse(read_toml(self.folder / run.FILE))
        except DepthbenchError:
            return UNKNOWN
        return _of_study(study, rows)


def _of_study(study: ResolvedStudy, rows: Rows) -> Share:
    try:
        own = belonging(study, [Row.parse(row) for row in rows.values()])
    except DepthbenchError:
        # of another version: all are counted
        return Share(study.trials, None, None)
    return Share(study.trials, {row.id for row in own}, missing_trials(study, own))


def _of_comparison(config: compare.CompareConfig, rows: Rows) -> Share:
    """The newest row of every side and seed: ids are not known without the data."""
    asked = {(label, seed) for label in config.labels for seed in config.seeds}
    newest = {(row.get("label"), row.get("seed")): name for name, row in rows.items()}
    own = {name for key, name in newest.items() if key in asked}
    return Share(len(asked), own, len(asked) - len(own))


def _mark_of(path: Path) -> tuple[int, int, int] | None:
    """What changes with a file; None when there is none."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_ino, facts.st_size, facts.st_mtime_ns
