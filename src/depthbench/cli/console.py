"""Where tables are printed."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from depthbench.errors import printable


def wide_console(columns: int) -> Console:
    """Standard output, ``columns`` wide where it is no terminal that knows its own width."""
    console = Console()
    return console if console.is_terminal else Console(width=columns)


def tell(table: Table, sentences: Iterable[str], columns: int) -> Console:
    """Print a table and what it means; the console that it went to."""
    console = wide_console(columns)
    console.print(table)
    say(console, (f"- {sentence}" for sentence in sentences))
    return console


def say(console: Console, lines: Iterable[str], soft_wrap: bool = False) -> None:
    """Lines as they are: no markup, and nothing that a terminal obeys."""
    for line in lines:
        console.print(printable(line), highlight=False, markup=False, soft_wrap=soft_wrap)
