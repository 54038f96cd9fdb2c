"""A view as text for the terminal."""

from rich.console import Group, RenderableType
from rich.text import Text

from depthbench.watch.place import View
from depthbench.watch.view import RunView

LEVELS = "▁▂▃▄▅▆▇█"
BAR = 28
QUIET_SECONDS = 60
"""A run that has written nothing for so long is said to be quiet."""
COLOURS = {"note": "cyan", "warning": "yellow", "problem": "bold red"}
STATES = {"done": "green", "running": "cyan", "waiting": "cyan"}
MOST_FINDINGS = 8


def picture(view: View) -> RenderableType:
    """All of it: a study's counts, then every run."""
    parts: list[RenderableType] = []
    if view.kind == "study":
        parts.append(_study_line(view))
    for run in view.runs:
        parts.append(run_picture(run))
    if view.more:
        parts.append(Text(f"… {view.more} more under way"))
    return Group(*parts)


def run_picture(run: RunView) -> RenderableType:
    """One run in a few lines."""
    head = Text.assemble(
        (run.label, "bold"), "   ", (run.state, STATES.get(run.state, "bold red")), _why(run)
    )
    parts: list[RenderableType] = [head, _progress(run)]
    if run.step:
        parts.append(_numbers(run))
        parts.append(_curve(run))
    if run.unread:
        parts.append(Text(f"{run.unread} lines of the metrics are no JSON", style="yellow"))
    parts += [_finding(one.severity, one.step, one.words) for one in run.findings[:MOST_FINDINGS]]
    if len(run.findings) > MOST_FINDINGS:
        parts.append(Text(f"… {len(run.findings) - MOST_FINDINGS} more in health.json"))
    return Group(*parts, Text(""))


def sparkline(losses: tuple[float | None, ...]) -> str:
    """A bar for each value between the least and the greatest; ``×`` where none is finite."""
    known = [loss for loss in losses if loss is not None]
    low, span = min(known, default=0.0), max(known, default=0.0) - min(known, default=0.0)
    return "".join(
        "×" if loss is None else LEVELS[round((loss - low) / span * 7) if span else 0]
        for loss in losses
    )


def clock(seconds: float) -> str:
    """``2:03:04``, ``3:04``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _study_line(view: View) -> Text:
    done = sum(view.finished.values())
    counts = ", ".join(f"{number} {state}" for state, number in sorted(view.finished.items()))
    total = "" if view.total is None else f" of {view.total}"
    text = f"{view.folder}: {done}{total} trials have a result"
    text += f" ({counts})" if counts else ""
    under_way = len(view.runs) + view.more
    text += f", {under_way} under way" if under_way else ""
    text += f", {view.left_out} of an earlier config left out" if view.left_out else ""
    text += "" if view.reason is None else f"; {view.reason}"
    return Text(text)


def _why(run: RunView) -> str:
    if run.reason is not None:
        return f": {run.reason}"
    quiet = run.quiet_seconds
    if run.over or quiet is None or quiet < QUIET_SECONDS:
        return ""
    return f", quiet for {clock(quiet)}"


def _progress(run: RunView) -> Text:
    if run.steps is None:
        return Text(f"step {run.step:,}")
    full = round(run.step / run.steps * BAR)
    bar = "━" * full + "╌" * (BAR - full)
    left = "" if run.seconds_left is None else f"   {clock(run.seconds_left)} left"
    share = 100 * run.step / run.steps
    return Text(f"{bar} step {run.step:,} of {run.steps:,} ({share:.0f} %){left}")


def _numbers(run: RunView) -> Text:
    validation = None
    if run.validation_loss is not None:
        validation = f"{run.validation_loss:.4f} bits/byte (step {run.validation_step:,})"
    facts = (
        ("loss", None if run.train_loss is None else f"{run.train_loss:.4f}"),
        ("validation", validation),
        ("LR", None if run.learning_rate is None else f"{run.learning_rate:.3g}"),
        ("gradient", None if run.grad_norm is None else f"{run.grad_norm:.3g}"),
        ("tokens/s", None if run.tokens_per_second is None else f"{run.tokens_per_second:,.0f}"),
    )
    return Text("   ".join(f"{name} {'–' if text is None else text}" for name, text in facts))


def _curve(run: RunView) -> Text:
    known = [loss for loss in run.losses if loss is not None]
    ends = f"  {known[0]:.3f} → {known[-1]:.3f}" if known else ""
    return Text(f"{sparkline(run.losses)}{ends}")


def _finding(severity: str, step: int | None, words: str) -> Text:
    at = "" if step is None else f"step {step:,}: "
    return Text.assemble((f"{severity} ", COLOURS.get(severity, "")), f"{at}{words}")
