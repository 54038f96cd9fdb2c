"""Subcommands whose modules are imported when they run: `depthbench --help` needs none of them."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple, final

import typer
from typer.core import TyperCommand, TyperGroup

from depthbench.errors import unknown


class Later(NamedTuple):
    """Where a command is, and what `--help` says of it, which is its docstring's first sentence."""

    module: str
    """In `depthbench.cli`; its ``register(app)`` adds the command."""
    says: str


def lazy_group(commands: Mapping[str, Later]) -> type[TyperGroup]:
    """A group of these commands, each a name and a sentence until it is called."""

    @final
    class Lazy(TyperGroup):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.commands = {
                name: TyperCommand(name, help=one.says) for name, one in commands.items()
            }

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            if args and args[0] not in commands and not args[0].startswith("-"):
                raise unknown("command", args[0], commands)
            name, stub, rest = super().resolve_command(ctx, args)
            return name, stub if name is None else loaded(name, commands[name]), rest

    return Lazy


def loaded(name: str, one: Later) -> Any:
    """The command itself."""
    app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})
    import_module(f"depthbench.cli.{one.module}").register(app)
    return typer.main.get_group(app).commands[name]
