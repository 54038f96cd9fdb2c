"""``commands.md``: every command with its arguments, options and examples, from the app itself."""

import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from typer.core import TyperArgument, TyperGroup

from depthbench.cli.app import COMMANDS
from depthbench.cli.lazy import loaded
from depthbench.docs.markdown import COMMAND, bound, cell, table

HEAD = f"""<!-- Written by `{COMMAND}`; do not edit. -->

# Commands

Every command with its arguments and options, from the command line itself: `{COMMAND}` writes
this page, and `depthbench COMMAND --help` says the same. `…` behind a kind: it may be given several
times. Exit codes: 0 done, 1 something failed or does not hold, 2 bad input, 130 interrupted.
"""
KINDS: Mapping[type, str] = {str: "text", int: "number", float: "number", Path: "path"}


class Found(NamedTuple):
    """One command of the app."""

    words: tuple[str, ...]
    """As it is typed, without ``depthbench``."""
    command: Any


def every_command() -> Iterator[Found]:
    """All commands in the order of the help, those of groups behind their group."""
    for name, later in COMMANDS.items():
        yield from _within((name,), loaded(name, later))


def _within(words: tuple[str, ...], command: Any) -> Iterator[Found]:
    yield Found(words, command)
    if isinstance(command, TyperGroup):
        for name, inner in command.commands.items():
            yield from _within((*words, name), inner)


def commands_page() -> str:
    """The page."""
    found = list(every_command())
    index = [
        (f"[`{' '.join(one.words)}`](#{anchor(one.words)})", cell(_first_sentence(one.command)))
        for one in found
    ]
    sections = ["\n".join(_section(one)) for one in found]
    return "\n".join([HEAD, *table(("command", "what it does"), index), "", *sections])


def anchor(words: tuple[str, ...]) -> str:
    """The id of a command's heading."""
    return "-".join(("depthbench", *words))


def _first_sentence(command: Any) -> str:
    return " ".join((command.help or "").split("\n\n")[0].split())


def _section(one: Found) -> list[str]:
    words, examples = _split(one.command)
    lines = [f"{'##' if len(one.words) == 1 else '###'} depthbench {' '.join(one.words)}", ""]
    lines += [words, ""]
    if isinstance(one.command, TyperGroup):
        names = ", ".join(
            f"[`{name}`](#{anchor((*one.words, name))})" for name in one.command.commands
        )
        lines += [f"Commands: {names}.", ""]
    else:
        lines += _parameters(one)
    if examples:
        lines += ["```sh", *examples, "```", ""]
    return lines


def _split(command: Any) -> tuple[str, list[str]]:
    """What a command says of itself, and its examples, which stand in its help or behind it."""
    words, marked, inside = (command.help or "").partition("Example")
    said = "\n\n".join(" ".join(part.split()) for part in words.split("\n\n") if part.strip())
    shown = f"{inside if marked else ''}\n{command.epilog or ''}"
    lines = [line.partition("Example:")[2] or line for line in shown.splitlines()]
    lines = [line.lstrip("s:").strip() for line in lines]
    return said, [line for line in lines if line.startswith("depthbench ")]


def _parameters(one: Found) -> list[str]:
    visible = [given for given in one.command.params if not given.hidden]
    arguments = [given for given in visible if isinstance(given, TyperArgument)]
    options = [given for given in visible if not isinstance(given, TyperArgument)]
    shown = " ".join(_metavar(given) for given in arguments)
    usage = " ".join(
        filter(None, ("depthbench", *one.words, "[OPTIONS]" if options else "", shown))
    )
    lines = [f"`{usage}`", ""]
    if arguments:
        rows = [(f"`{_metavar(given)}`", _allowed(given), _meaning(given)) for given in arguments]
        lines += [*table(("argument", "kind", "meaning"), rows), ""]
    if options:
        rows = [
            (_flags(given), _allowed(given), _default(given), _meaning(given)) for given in options
        ]
        lines += [*table(("option", "kind", "default", "meaning"), rows), ""]
    return lines


def _metavar(given: Any) -> str:
    if given.metavar:
        return given.metavar
    name = given.name.upper() + ("..." if given.nargs == -1 else "")
    return name if given.required else f"[{name}]"


def _flags(given: Any) -> str:
    return ", ".join(f"`{flag}`" for flag in (*given.opts, *given.secondary_opts))


def _allowed(given: Any) -> str:
    annotation = given.type_descriptor.annotation
    if annotation is bool:
        return "switch"
    limits = [
        bound(sign, limit)
        for sign, limit in (("≥", given.min), ("≤", given.max))
        if limit is not None
    ]
    several = "…" if get_origin(annotation) is list else ""
    return cell(", ".join([_kind(annotation) + several, *limits]))


def _kind(annotation: Any) -> str:
    """Words for a type."""
    if annotation in KINDS:
        return KINDS[annotation]
    if get_origin(annotation) is Literal:
        return " | ".join(f"`{value}`" for value in get_args(annotation))
    if get_origin(annotation) in (list, Union, types.UnionType):
        inner = [part for part in get_args(annotation) if part is not type(None)]
        return " | ".join(dict.fromkeys(map(_kind, inner)))
    raise TypeError(f"no words for an option of the kind {annotation}")


def _default(given: Any) -> str:
    if given.required:
        return "needed"
    if given.default is None or given.default is False or given.default == []:
        return ""
    if given.default is True:
        return f"`{given.opts[0]}`"
    return f"`{given.default}`"


def _meaning(given: Any) -> str:
    return cell(" ".join((given.help or "").split()))
