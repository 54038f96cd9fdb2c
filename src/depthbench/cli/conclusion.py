"""What is printed at the end of a study: its verdict, and where its pages are."""

import json
from collections.abc import Iterable
from pathlib import Path

from depthbench.cli.console import say, tell
from depthbench.report.table import result_table
from depthbench.study.findings import Verdict

WIDE = 120
"""Columns where the output is no terminal that knows its own."""


def read_verdict(path: Path) -> Verdict:
    """The ``verdict.json`` in ``path``."""
    return Verdict.parse(json.loads(path.read_text(encoding="utf-8")), str(path))


def tell_verdict(verdict: Verdict, page: Path, others: Iterable[Path] = ()) -> None:
    """Print the table, the headline, its evidence, and the pages."""
    console = tell(result_table(verdict), (), WIDE)
    say(console, [verdict.headline, *(f"- {sentence}" for sentence in verdict.sentences())])
    places = [f"\nReport: {page}", *(f"Written: {other}" for other in others)]
    say(console, places, soft_wrap=True)
