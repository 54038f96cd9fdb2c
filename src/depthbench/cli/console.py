"""Where tables are printed."""

from rich.console import Console


def wide_console(columns: int) -> Console:
    """Standard output, ``columns`` wide where it is no terminal that knows its own width."""
    console = Console()
    return console if console.is_terminal else Console(width=columns)
