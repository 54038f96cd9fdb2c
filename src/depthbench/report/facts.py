"""What surrounds the figures of a report: scope, limits, tables and provenance."""

from collections.abc import Iterable
from dataclasses import dataclass

from depthbench.quantities import count_text
from depthbench.report.study import StudyData, depths
from depthbench.study.findings import DesignFinding, Point, Verdict
from depthbench.study.store import Row
from depthbench.study.words import counted, listed


@dataclass(frozen=True)
class Cell:
    """One design at one depth."""

    text: str
    note: str
    best: bool


def grid(verdict: Verdict) -> list[tuple[str, list[Cell]]]:
    """Mean bits per byte (± sample standard deviation) of every design at every depth."""
    layers = depths(verdict)
    return [
        (design.label, [_cell(design, depth) for depth in layers]) for design in verdict.designs
    ]


def strip(study: StudyData) -> list[tuple[str, str]]:
    """The study in a few figures: caption and value."""
    verdict, rows = study.verdict, study.rows
    finished = f"{verdict.finished} of {len(rows) + study.unfinished}"
    facts = [("trials finished", finished)]
    if verdict.diverged or verdict.failed:
        facts.append(("diverged / failed", f"{verdict.diverged} / {verdict.failed}"))
    facts += [
        ("designs", str(len(verdict.designs))),
        ("layers", ", ".join(map(str, depths(verdict))) or "–"),
        ("seeds", str(len({row.seed for row in rows}))),
        ("parameters", span([row.parameters.total for row in rows])),
    ]
    done = [row for row in rows if row.status == "done"]
    if done:
        facts.append(("tokens a trial", span([row.tokens for row in done])))
    losses = [row.loss.bits_per_byte for row in done if row.loss]
    if losses:
        facts.append(("least bits per byte", f"{min(losses):.3f}"))
    return facts


def shows(study: StudyData) -> list[str]:
    """What the study shows, as far as its rows tell."""
    rows, verdict = study.rows, study.verdict
    labels = [design.label for design in verdict.designs]
    text = [
        f"Validation loss of {listed(labels)} at {listed(map(str, depths(verdict)))} layers, "
        f"with {span([row.parameters.total for row in rows])} parameters, on the same held-out "
        "text, in bits per byte and nats per token."
    ]
    searched = [design for design in verdict.designs if len(design.search.grid) > 1]
    if searched:
        text.append(
            f"Each of {listed(d.label for d in searched)} trained at the learning rate that was "
            f"best for it among {span([len(d.search.grid) for d in searched])} tried at its "
            "middle shape."
        )
    text.append("Every trial that diverged or failed, with its reason, in the table of trials.")
    return text


def shows_not(study: StudyData) -> list[str]:
    """What the study cannot show."""
    verdict, rows = study.verdict, study.rows
    text: list[str] = []
    few = [d.label for d in verdict.designs if any(p.finished < 3 for p in d.curve)]
    if few:
        text.append(f"A winner: some shapes of {listed(few)} have fewer than three finished seeds.")
    per_parameter = [row.tokens / row.parameters.total for row in rows if row.status == "done"]
    if per_parameter:
        text.append(
            f"Other budgets: {span(per_parameter)} tokens a parameter were trained here; the "
            "published runs used 20 tokens a parameter at 200M to 1600M parameters."
        )
    text.append(
        "The best learning rate of every shape: it was searched at the middle shape, or set once, "
        "and all shapes of a design share it."
    )
    text.append(
        "Whether the added layers compute something new, or what a design costs at inference: "
        "validation loss alone says neither."
    )
    if study.unfinished:
        text.append(
            f"The whole study: {counted(study.unfinished, 'trial')} of its plan did not finish yet."
        )
    return text


def provenance(study: StudyData) -> list[tuple[str, str]]:
    """Data, versions, machine and commit; all values where trials differ."""
    rows = study.rows
    machines = [row.machine for row in rows]
    return [
        ("data hash", _all(row.data_hash for row in rows)),
        ("depthbench", _all(machine.depthbench for machine in machines)),
        ("commit", _all(machine.commit or "not from a checkout" for machine in machines)),
        ("torch", _all(machine.torch for machine in machines)),
        ("python", _all(machine.python for machine in machines)),
        (
            "machine",
            _all(f"{m.host}: {m.processor}, {m.cores} cores, {m.platform}" for m in machines),
        ),
        ("device", _all(f"{machine.device}, {machine.dtype}" for machine in machines)),
        ("last trial finished", max(row.finished for row in rows)),
        ("rows of another config, left out", str(study.left_out)),
        ("notes", _all(note for row in rows for note in row.notes) or "none"),
    ]


def domains(rows: list[Row]) -> list[str]:
    """Every domain that a trial was validated on, in order of appearance."""
    return list(dict.fromkeys(name for row in rows for name in row.domains))


def _cell(design: DesignFinding, layers: int) -> Cell:
    points = [point for point in design.curve if point.layers == layers]
    best = design.best
    return Cell(
        text=" / ".join(_cell_text(point) for point in points) or "–",
        note="; ".join(note for point in points if (note := _cell_note(point))),
        best=any(point == best for point in points),
    )


def _cell_text(point: Point) -> str:
    if point.bits_per_byte is None:
        return point.lost
    spread = f" ± {point.spread.standard_deviation:.3f}" if point.spread else ""
    return f"{point.bits_per_byte:.3f}{spread}"


def _cell_note(point: Point) -> str:
    parts = ((point.diverged, "diverged"), (point.failed, "failed"))
    lost = [f"{number} {what}" for number, what in parts if number and point.finished]
    return f"n = {point.finished}, {', '.join(lost)}" if lost else ""


def _all(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))


def span(values: list[int] | list[float]) -> str:
    """``500k`` or ``492k to 501k``."""
    low, high = (count_text(bound) for bound in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
