"""``depthbench report``: the verdict, figures and HTML page of a study."""

import json
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the ``report`` command to ``app``."""
    app.command("report")(report)


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
) -> None:
    """Write report.html, verdict.json and figures of a study, and print its verdict.

    A study that is not finished is reported as far as it is.

    Example: depthbench report runs/demo --published
    """
    # plotting libraries take a second to import, which no other command should pay
    from rich.console import Console

    from depthbench.report import write_report
    from depthbench.report.table import result_table
    from depthbench.study.findings import Verdict

    files = write_report(folder, published=published, out=out)
    text = files.verdict.read_text(encoding="utf-8")
    if as_json:
        typer.echo(text.rstrip("\n"))
        return
    verdict = Verdict.parse(json.loads(text), str(files.verdict))
    console = Console()
    console.print(result_table(verdict))
    console.print(verdict.headline, markup=False, highlight=False)
    for sentence in verdict.sentences():
        console.print(f"- {sentence}", markup=False, highlight=False)
    console.print(f"Report: {files.html}", markup=False, highlight=False, soft_wrap=True)
