"""Where tables are printed."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table


def wide_console(columns: int) -> Console:
    """Standard output, ``columns`` wide where it is no terminal that knows its own width."""
    console = Console()
    return console if console.is_terminal else Console(width=columns)


def tell(table: Table, sentences: Iterable[str], columns: int) -> Console:
    """Print a table and what it means; the console that it went to."""
    console = wide_console(columns)
    console.print(table)
    for sentence in sentences:
        console.print(f"- {sentence}", highlight=False, markup=False)
    return console
