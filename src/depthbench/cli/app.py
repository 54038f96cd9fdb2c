"""The `depthbench` command: subcommands, and errors in one line with exit code 2."""

import sys

import typer
from pydantic import ValidationError

from depthbench.cli import (
    bench,
    check,
    choose,
    compare,
    convert,
    coordcheck,
    cost,
    data,
    designs,
    eval,
    generate,
    probe,
    prune,
    report,
    run,
    shapes,
    streams,
    train,
    watch,
)
from depthbench.errors import DepthbenchError


def build() -> typer.Typer:
    """The command with all its subcommands."""
    app = typer.Typer(
        name="depthbench",
        help="Do more layers buy more computation, and which residual connection makes them?",
        add_completion=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    groups = (
        run,
        report,
        compare,
        watch,
        shapes,
        designs,
        check,
        choose,
        coordcheck,
        generate,
        train,
        probe,
        prune,
        convert,
        streams,
        cost,
        bench,
        data,
        eval,
    )
    for group in groups:
        group.register(app)
    return app


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 something failed, 2 bad input, 130 interrupted."""
    sys.exit(execute(sys.argv[1:] if arguments is None else arguments))


def execute(arguments: list[str]) -> int:
    """Exit code of the command line with these arguments; without any, it prints its help."""
    command = typer.main.get_command(build())
    try:
        result = command.main(
            arguments or ["--help"], prog_name="depthbench", standalone_mode=False
        )
    except DepthbenchError as error:
        return _refuse(str(error))
    except typer.TyperException as error:
        return _refuse(f"{_sentence(error.format_message() + _given(error))} See depthbench --help")
    except (KeyboardInterrupt, typer.Abort):
        return 130
    return result if isinstance(result, int) else 0


def _given(error: typer.TyperException) -> str:
    """What was given instead, where the message names the option alone."""
    cause = error.__cause__
    return f", not {cause.errors()[0]['input']}" if isinstance(cause, ValidationError) else ""


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?")) else f"{text}."


def _refuse(message: str) -> int:
    print("depthbench: " + " ".join(message.split()), file=sys.stderr)
    return 2
