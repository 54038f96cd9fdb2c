"""Which trials of a study are probed."""

from collections.abc import Iterable
from pathlib import Path

from depthbench.study.store import Row, Store

FOLDER = "probes"


def chosen_trials(rows: Iterable[Row]) -> list[Row]:
    """Best finished trial of every design, and its best at the deepest shape; no trial twice."""
    done = [row for row in rows if row.status == "done" and row.loss is not None]
    chosen: dict[str, Row] = {}
    for label in dict.fromkeys(row.label for row in done):
        own = [row for row in done if row.label == label]
        deepest = max(row.shape.layers for row in own)
        for some in (own, [row for row in own if row.shape.layers == deepest]):
            best = min(some, key=_loss)
            chosen[best.id] = best
    return list(chosen.values())


def trials_of(folder: Path) -> list[Row]:
    """The same of the study in ``folder``."""
    return chosen_trials(Store(folder).rows())


def _loss(row: Row) -> float:
    assert row.loss is not None
    return row.loss.bits_per_byte
