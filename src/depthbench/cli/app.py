"""The `depthbench` command: subcommands, and errors in one line with exit code 2."""

import sys

import typer

from depthbench.cli.lazy import Later, lazy_group
from depthbench.errors import DepthbenchError, printable

COMMANDS = {
    "run": Later(
        "run",
        "Run a study: search each design's learning rate, train all shapes, write the report.",
    ),
    "demo": Later(
        "run", "Minutes on two cores, no download: three designs, three shapes of 0.5 M parameters."
    ),
    "report": Later(
        "report", "Write report.html, verdict.json and figures of a study, and print its verdict."
    ),
    "compare": Later(
        "compare",
        "Train A and B with the same seeds, data order and shared start, and compare them.",
    ),
    "watch": Later(
        "watch", "Show loss, learning rate, speed, time left and findings until the run ends."
    ),
    "doctor": Later(
        "doctor",
        "Say what is installed, how fast this machine is, and what is missing for which feature.",
    ),
    "init": Later("init", "Write a study file with comments, for your budget and this machine."),
    "schema": Later(
        "schema", "Print the JSON Schema of what depthbench writes and of what --json prints."
    ),
    "serve": Later(
        "serve", "Show studies in a browser while they run; the pages follow as trials finish."
    ),
    "shapes": Later(
        "shapes", "Find width and feed-forward of shapes that share one parameter budget."
    ),
    "designs": Later(
        "designs",
        "List the residual designs: what a site reads, its weights, own parameters, paper.",
    ),
    "check": Later(
        "check", "Check designs: equation, causality, start, training, decoding, compiling, counts."
    ),
    "choose": Later(
        "choose", "The least measured loss under limits on serving, and what the limits cost."
    ),
    "coordcheck": Later(
        "coordcheck", "Measure how far a few steps move activations at many depths and widths."
    ),
    "generate": Later(
        "generate",
        "Continue a text with a trained model, as a new document, until that document ends.",
    ),
    "train": Later(
        "train", "Train one model. Ctrl-C or SIGTERM saves and ends; the same command goes on."
    ),
    "probe": Later(
        "probe",
        "Measure how a model uses its depth: what each block does, and what is lost without it.",
    ),
    "prune": Later(
        "prune", "Leave out blocks, and write what is left as a model in the same format."
    ),
    "convert": Later("convert", "Write a model in another format, with its tokenizer and a card."),
    "cost": Later("cost", "Compute, memory, cache and time of models, from the models themselves."),
    "bench": Later(
        "bench",
        "Measure prefill, first token, time per token and memory; `bench device`: the machine.",
    ),
    "streams": Later(
        "streams", "Which residual streams carry information, which can go, and merging them."
    ),
    "data": Later("data", "Turn text into token shards, and look at them."),
    "eval": Later("eval", "Measure models on text, answers and tasks."),
}


def build() -> typer.Typer:
    """The command with all its subcommands."""
    app = typer.Typer(
        name="depthbench",
        cls=lazy_group(COMMANDS),
        help="Do more layers buy more computation, and which residual connection makes them?",
        add_completion=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    # only of an app with a callback does typer make a group that completes itself
    app.callback()(lambda: None)
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
    # needed for this message alone
    from pydantic import ValidationError

    cause = error.__cause__
    return f", not {cause.errors()[0]['input']}" if isinstance(cause, ValidationError) else ""


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?")) else f"{text}."


def _refuse(message: str) -> int:
    print("depthbench: " + printable(" ".join(message.split())), file=sys.stderr)
    return 2
