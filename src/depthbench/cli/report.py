"""``depthbench report``: the verdict, figures and HTML page of a study."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from depthbench.errors import DepthbenchError

if TYPE_CHECKING:
    from rich.console import Console

CONTEXT = 4096
EXAMPLE = """Examples:

depthbench report runs/demo --published

depthbench report runs/demo --compare runs/pocket --paper paper/
"""


def register(app: typer.Typer) -> None:
    """Add the ``report`` command to ``app``."""
    app.command("report", epilog=EXAMPLE)(report)


def report(
    folder: Annotated[
        Path, typer.Argument(help="Folder of a study, as `depthbench run` wrote it.")
    ],
    published: Annotated[
        bool,
        typer.Option(
            "--published", help="Lay the published 400M curves below ours, in their own panel."
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the verdict as JSON and nothing else.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder to write to; the study's own folder by default."),
    ] = None,
    compare: Annotated[
        list[Path] | None,
        typer.Option("--compare", help="Another study, for a page of both; repeatable."),
    ] = None,
    paper: Annotated[
        Path | None,
        typer.Option("--paper", help="Folder for figures as PDF and SVG, LaTeX tables, captions."),
    ] = None,
    serve_on: Annotated[
        str | None,
        typer.Option(
            "--serve-on", help="Device whose costs to serve are modelled and added: h100, this."
        ),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option("--context", min=1, help="Tokens for --serve-on; 4096 if not given."),
    ] = None,
) -> None:
    """Write report.html, verdict.json and figures of a study, and print its verdict.

    A study that is not finished is reported as far as it is.
    """
    # plotting libraries take a second to import, which no other command should pay
    from rich.console import Console

    from depthbench.cli.conclusion import read_verdict, tell_verdict
    from depthbench.report import write_report
    from depthbench.report.paper import write_paper
    from depthbench.report.studies import write_studies

    errors = Console(stderr=True)
    if serve_on is not None:
        _model_serving(folder, serve_on, context or CONTEXT, errors)
    elif context is not None:
        raise DepthbenchError(
            f"--context {context} is for costs to serve: add --serve-on h100, or leave it out"
        )
    files = write_report(folder, published=published, out=out)
    others: list[Path] = []
    if compare:
        others.append(write_studies([folder, *compare], out or folder))
    if paper:
        others += write_paper(folder, paper)
    if as_json:
        typer.echo(files.verdict.read_text(encoding="utf-8").rstrip("\n"))
        return
    tell_verdict(read_verdict(files.verdict), files.html, others)


def _model_serving(folder: Path, device: str, context: int, console: "Console") -> None:
    """Model what the study's models cost to serve, and keep it beside them."""
    from depthbench.cost.candidates import Conditions
    from depthbench.cost.devices import find_device
    from depthbench.report.serving import serve_costs
    from depthbench.report.study import read_study_folder
    from depthbench.study.plan import belonging

    resolved, rows = read_study_folder(folder)
    conditions = Conditions(device=find_device(device), context=context)
    with console.status("modelling") as status:
        serve_costs(folder, belonging(resolved, rows), conditions, status.update)
