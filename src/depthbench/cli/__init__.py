"""The command line."""

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit; see `depthbench.cli.app`."""
    # a spawned process imports its program's main module, and needs no command
    from depthbench.cli import app

    app.main(arguments)
