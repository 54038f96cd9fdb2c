"""``depthbench eval``: models on text, answers and tasks."""

import typer
from typer.core import TyperGroup

from depthbench.cli import eval_models, eval_tasks


class _ModelOrTasks(TyperGroup):
    """Whatever is no command of the group is a model."""

    def parse_args(self, ctx, args):  # pyright: ignore[reportMissingParameterType]
        own = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if own else ["model", *args])


def register(app: typer.Typer) -> None:
    """Add the command ``eval`` to ``app``."""
    group = typer.Typer(
        cls=_ModelOrTasks,
        help="Measure models on text, answers and tasks.",
        epilog="Example: depthbench eval runs/mine --data texts/",
    )
    group.command("model", epilog=eval_models.EXAMPLE)(eval_models.models)
    group.command("tasks", epilog=eval_tasks.EXAMPLE)(eval_tasks.tasks)
    app.add_typer(group, name="eval")
