"""What a study's stream diagnoses say, as its report shows them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from depthbench.errors import DepthbenchError
from depthbench.probes.result import ProbeResult
from depthbench.probes.run import read_results
from depthbench.streams import FOLDER
from depthbench.streams.conclude import in_order
from depthbench.study.store import Row

VERDICT = "verdict"
PAGE = "report.html"


@dataclass(frozen=True)
class Diagnosed:
    """One trial whose streams were looked at."""

    row: Row
    results: tuple[ProbeResult, ...]
    page: Path | None
    """Its own page."""

    @property
    def words(self) -> tuple[str, ...]:
        """What can be merged, or, without a verdict, what the other measures say."""
        verdict = [one for one in self.results if one.probe == VERDICT]
        return tuple(word for one in verdict or self.results for word in one.words)


@dataclass(frozen=True)
class DiagnosedStudy:
    """All of them."""

    trials: tuple[Diagnosed, ...]
    remarks: tuple[str, ...]
    """What is broken or of no trial."""


def diagnosed_study(folder: Path, rows: Sequence[Row]) -> DiagnosedStudy | None:
    """What lies under ``streams`` of the study in ``folder``; None if nothing does."""
    known = {row.id: row for row in rows}
    trials: list[Diagnosed] = []
    remarks: list[str] = []
    for place in sorted({path.parent for path in (folder / FOLDER).glob("*/*.json")}):
        row = known.get(place.name)
        if row is None:
            remarks.append(f"{FOLDER}/{place.name} is of no trial of this study: left out.")
            continue
        try:
            results = tuple(in_order(read_results(place)))
        except DepthbenchError as error:
            remarks.append(f"{error}.")
            continue
        if results:
            page = place / PAGE
            trials.append(Diagnosed(row, results, page if page.exists() else None))
    if not trials and not remarks:
        return None
    trials.sort(key=lambda one: (one.row.label, one.row.shape.layers, one.row.seed))
    return DiagnosedStudy(tuple(trials), tuple(remarks))
