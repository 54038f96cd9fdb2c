"""``depthbench check``: hold designs, also one of your own, against the laws of all designs."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from depthbench.check.law import Finding
from depthbench.check.laws import LAWS
from depthbench.check.run import (
    Checked,
    all_asked,
    all_broken,
    asked_for,
    check_all,
    refuse_empty,
)
from depthbench.check.signal import DEPTHS, Signal
from depthbench.cli.console import wide_console
from depthbench.cores import cores
from depthbench.machine import prepare_process

EXAMPLE = """Examples:

depthbench check hc

depthbench check ./mine.py --json

depthbench check --all --law signal
"""
WIDE = 180
"""Columns of the tables where the output is no terminal that knows its own."""
MARKS = {"held": "✓", "broken": "✗", "none": "·"}


def register(app: typer.Typer) -> None:
    """Add the command ``check`` to ``app``."""
    app.command("check", epilog=EXAMPLE)(check)


def check(
    designs: Annotated[
        list[str] | None, typer.Argument(help="Names, or Python files of one design each.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every registered design.")] = False,
    law: Annotated[
        list[str] | None, typer.Option("--law", help="Only this law; may be repeated.")
    ] = None,
    backbone: Annotated[str, typer.Option("--backbone", help="Kind of backbone.")] = "dense",
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Designs at once; default: one a core.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Check designs: equation, causality, start, training, decoding, compiling, counts.

    Exit code 1 if a law is broken. A file is run, as any Python module is. With --all, designs
    that the backbone cannot carry are named and left out.
    """
    refuse_empty(designs or [], every)
    prepare_process(threads=1)
    laws = law or []
    asked = (
        all_asked(backbone, laws)
        if every
        else [asked_for(spec, backbone, laws) for spec in designs or []]
    )
    with _progress() as progress:
        bar = progress.add_task("checking", total=len(asked))
        checked = check_all(asked, workers or cores(), lambda _: progress.advance(bar))
    if as_json:
        typer.echo(json.dumps([answer(one) for one in checked], indent=2, ensure_ascii=False))
    else:
        _show(checked)
    return 1 if all_broken(checked) else 0


class Told(Finding):
    """A finding as it is printed."""

    says: str
    """The law."""


class CheckedTold(Checked):
    """Each design that ``check --json`` prints."""

    findings: tuple[Told, ...]  # pyright: ignore[reportIncompatibleVariableOverride]  # frozen
    held: bool | None
    """None where it was refused."""


def answer(checked: Checked) -> dict[str, Any]:
    """One design as JSON, with what each law says."""
    told = tuple(Told(**dict(one), says=LAWS[one.law].says) for one in checked.findings)
    held = None if checked.refused else not checked.broken
    return CheckedTold(**dict(checked) | {"findings": told, "held": held}).resolved()


def _progress() -> Progress:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _show(checked: list[Checked]) -> None:
    console = wide_console(WIDE)
    ran = [one for one in checked if one.refused is None]
    if len(checked) == 1:
        console.print(findings_table(checked[0]))
    else:
        console.print(overview(ran))
        for label, finding in all_broken(ran):
            console.print(f"✗ {label}: {_sentence(finding)}", highlight=False, markup=False)
        for one in checked:
            if one.refused is not None:
                console.print(f"– refused: {one.refused}", highlight=False, markup=False)
    if any(one.signals for one in ran):
        console.print()
        console.print(signal_table(ran))
    if len(ran) == 1 and ran[0].signals:
        console.print()
        console.print(init_card(ran[0]))
    broken = len(all_broken(ran))
    laws = sum(len(one.findings) for one in ran)
    end = "every law holds" if not broken else f"{broken} of {laws} laws are broken"
    refused = f", {len(checked) - len(ran)} refused" if len(ran) < len(checked) else ""
    console.print(f"\n{len(ran)} checked{refused}: {end}", highlight=False)


def _sentence(finding: Finding) -> str:
    measured = "" if finding.measured is None else f" {finding.measured:.3g}"
    limit = "" if finding.limit is None else f" (at most {finding.limit:.3g})"
    return f"{finding.law}: {finding.detail}{measured}{limit}"


def findings_table(checked: Checked) -> Table:
    """One design: a line for each law."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", title=checked.label)
    for heading in ("", "law", "says", "measured", "at most", "what was seen"):
        table.add_column(heading, justify="right" if heading in ("measured", "at most") else "left")
    for finding in checked.findings:
        numbers = ["" if n is None else f"{n:.2g}" for n in (finding.measured, finding.limit)]
        cells = [finding.law, LAWS[finding.law].says, *numbers, finding.detail]
        table.add_row(MARKS[finding.status], *map(escape, cells))
    return table


def overview(checked: list[Checked]) -> Table:
    """Designs by laws."""
    laws = [finding.law for finding in checked[0].findings]
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("design", no_wrap=True)
    for law in laws:
        table.add_column(law[:9], justify="center", no_wrap=True)
    table.add_column("s", justify="right")
    for one in checked:
        marks = [MARKS[finding.status] for finding in one.findings]
        table.add_row(escape(one.label), *marks, f"{one.seconds:.0f}")
    return table


def signal_table(checked: list[Checked]) -> Table:
    """Init cards: the gradient by depth, and variances, at every number of blocks."""
    title = "start: gradient bottom/top by block · variance of the state top/bottom"
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", title=title)
    table.add_column("design", no_wrap=True)
    for layers in DEPTHS:
        table.add_column(f"gradient L{layers}", justify="right", no_wrap=True)
    for layers in DEPTHS:
        table.add_column(f"variance L{layers}", justify="right", no_wrap=True)
    for one in checked:
        by_depth: dict[int, Signal] = {signal.layers: signal for signal in one.signals}
        signals = [by_depth.get(layers) for layers in DEPTHS]
        ratios = [_number(signal and signal.gradient_ratio) for signal in signals]
        growths = [_number(signal and signal.forward_growth) for signal in signals]
        table.add_row(escape(one.label), *ratios, *growths)
    return table


def init_card(checked: Checked) -> Table:
    """One design by depth, at every number of blocks: from the bottom to the top."""
    title = "start by depth, from the bottom to the top"
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", title=title)
    for heading in ("blocks", "what", "bottom", "1/4", "1/2", "3/4", "top"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for signal in checked.signals:
        rows = {
            "variance of the state": signal.forward,
            "mean square of the gradient by branch outputs": signal.backward,
            "norm of the gradient by parameters": signal.gradient,
        }
        for what, values in rows.items():
            places = [round(quarter * (len(values) - 1) / 4) for quarter in range(5)]
            cells = [_number(values[place]) for place in places]
            table.add_row(str(signal.layers), what, *cells)
    return table


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:.3g}"
