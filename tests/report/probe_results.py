"""Made-up results of probes, every value told by its place."""

from pathlib import Path
from typing import Any

import numpy as np

from depthbench.probes.result import Finding, Number, ProbeResult, curve, matrix, row
from depthbench.probes.subject import SubjectFacts
from depthbench.probes.text import TextFacts
from depthbench.study.store import Row
from tests.report.synthetic import MACHINE

TEXT = TextFacts(
    hash="7e57",
    origin="validation documents",
    domains=("code",),
    documents=8,
    tokens=2048,
    predicted=2040,
    bytes=2040,
    length=256,
    start_token=256,
)
PAIR = "block {row} left out: relative change of what block {column} adds"


def subject(label: str, layers: int, **more: Any) -> SubjectFacts:
    facts: dict[str, Any] = {
        "label": label,
        "kind": "depthbench",
        "source": f"runs/{layers}",
        "model": "prenorm",
        "layers": layers,
        "width": 32,
        "streams": 1,
        "vocab": 257,
        "parameters": 42_784,
        "weights_hash": "ab12",
    }
    return SubjectFacts.parse(facts | more)


def result(probe: str, *findings: Finding, of: SubjectFacts, **more: Any) -> ProbeResult:
    facts: dict[str, Any] = {
        "probe": probe,
        "title": f"Title of {probe}",
        "definition": "C(s, l) = ‖u‖ < 1",
        "blind": "It cannot see the rest.",
        "source": "arXiv 2505.13898",
        "options": {"threshold": 0.45},
        "findings": findings,
        "subject": of,
        "text": TEXT,
        "seed": 0,
        "machine": MACHINE,
        "at": "2026-01-01T00:00:00+00:00",
        "seconds": 1.25,
    }
    return ProbeResult(**facts | more)


def effects(layers: int, unit: float = 1.0) -> np.ndarray:
    """``10 s + l`` above the diagonal, nothing elsewhere."""
    found = np.add.outer(10.0 * np.arange(layers), np.arange(layers)) * unit
    return np.where(np.triu(np.ones((layers, layers)), 1) > 0, found, np.nan)


def group(label: str, layers: int, unit: float = 1.0, **facts: Any) -> list[ProbeResult]:
    """`depth`, `causal` and `lens` of one model."""
    of = subject(label, layers, **facts)
    kept = Number(name="kept", title="Fewest blocks", unit="blocks", value=2, low=1, high=3)
    share = Number(name="late_share", title="Late pairs", unit="share", value=0.25 * unit)
    lens = np.arange(layers, -1.0, -1.0) * unit
    return [
        result("depth", kept, share, of=of, words=(f"2 of {layers} blocks keep the loss.",)),
        result(
            "causal",
            matrix("effect", "Effect of a skip", effects(layers, unit), words=PAIR),
            share,
            of=of,
        ),
        result(
            "lens",
            curve(
                "divergence",
                "KL",
                lens,
                "depth",
                unit="nats/token",
                words="read at depth {}",
                low=row(lens - 0.5),
                high=row([np.nan, *lens[1:] + 0.25]),
            ),
            matrix(
                "change",
                "Change",
                [[-unit, 0.5]],
                ("first", "last"),
                centre=0.0,
                unit="nats/token",
            ),
            of=of,
        ),
    ]


def write_results(folder: Path, row: Row, unit: float = 1.0, **facts: str) -> None:
    """Results of probes of ``row`` as the command leaves them."""
    layers = row.shape.layers
    place = folder / "probes" / row.id
    place.mkdir(parents=True)
    results = group(f"{row.label}, {layers} layers", layers, unit, **facts)
    for one in results:
        (place / f"{one.probe}.json").write_text(one.model_dump_json(), encoding="utf-8")
    (place / "report.html").write_text("its page", encoding="utf-8")
