"""The `depthbench` command: subcommands, and errors in one line with exit code 2."""

import sys

import click
import typer

from depthbench.cli import designs, report, run, shapes
from depthbench.errors import DepthbenchError


def build() -> typer.Typer:
    """The command with all its subcommands."""
    app = typer.Typer(
        name="depthbench",
        help="Do more layers buy more computation, and which residual connection makes them?",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for group in (run, report, shapes, designs):
        group.register(app)
    return app


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 something failed, 2 bad input, 130 interrupted."""
    sys.exit(execute(sys.argv[1:] if arguments is None else arguments))


def execute(arguments: list[str]) -> int:
    """Exit code of the command line with these arguments."""
    command = typer.main.get_command(build())
    try:
        result = command.main(arguments, prog_name="depthbench", standalone_mode=False)
    except DepthbenchError as error:
        return _refuse(str(error))
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 2
    except click.ClickException as error:
        return _refuse(f"{error.format_message()} See depthbench --help")
    except (KeyboardInterrupt, click.Abort):
        return 130
    except BrokenPipeError:
        return 0
    return result if isinstance(result, int) else 0


def _refuse(message: str) -> int:
    print("depthbench: " + " ".join(message.split()), file=sys.stderr)
    return 2
