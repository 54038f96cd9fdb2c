"""Studies for the tests of Ray, and what is compared of them."""

from pathlib import Path
from typing import Any

from depthbench.study.engine import Place
from depthbench.study.run import Study, open_study
from depthbench.study.store import Row
from tests.small import study_config

TIMES = {"seconds", "tokens_per_second", "finished", "machine", "notes"}


def opened(root: Path, out: str, place: Place, **changes: Any) -> Study:
    """A study on ``root``'s text, in its folder ``out``."""
    config = study_config(root / "words.txt", **changes)
    return open_study(config, root / out, cache=root / "cache", place=place)


def results(rows: list[Row]) -> dict[str, dict[str, Any]]:
    """All of the rows but what depends on clock and machine."""
    plain = (row.resolved() for row in rows)
    return {row["id"]: {k: v for k, v in row.items() if k not in TIMES} for row in plain}


def metrics(study: Study) -> dict[str, bytes]:
    """The metrics of every trial."""
    files = study.folder.glob("trials/*/metrics.jsonl")
    return {path.parent.name: path.read_bytes() for path in files}
