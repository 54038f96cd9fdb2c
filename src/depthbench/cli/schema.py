"""``depthbench schema``: what the data that depthbench writes looks like."""

import json
from typing import Annotated

import typer

EXAMPLE = """Examples:

depthbench schema

depthbench schema verdict
"""


def register(app: typer.Typer) -> None:
    """Add the command ``schema`` to ``app``."""
    app.command("schema", epilog=EXAMPLE)(schema)


def schema(
    name: Annotated[
        str | None, typer.Argument(help="One kind of data.", show_default="lists all")
    ] = None,
) -> None:
    """Print the JSON Schema of what depthbench writes and of what --json prints."""
    from depthbench.schemas import DOCUMENTS, schema_of

    if name is not None:
        typer.echo(json.dumps(schema_of(name), indent=1, ensure_ascii=False))
        return
    for key, one in DOCUMENTS.items():
        typer.echo(f"{key:<12} version {one.version}   {one.found}")
