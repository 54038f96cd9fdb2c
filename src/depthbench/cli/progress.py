"""Live progress of a study; silent when not on a terminal."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from depthbench.study.engine import Running
from depthbench.study.plan import Planned
from depthbench.study.store import Row

BAR = 24


class StudyProgress:
    """Done, running and failed trials, tokens per second and time left."""

    def __init__(self, total: int, tokens_each: int, rows: list[Row], console: Console) -> None:
        """``rows`` of the trials that are settled, of ``total`` with ``tokens_each``."""
        self.total, self.tokens_each = total, tokens_each
        self.before = len(rows)
        self.done = sum(row.status == "done" for row in rows)
        self.diverged = sum(row.status == "diverged" for row in rows)
        self.failed = 0
        self.finished_tokens = 0
        self.started = time.monotonic()
        self.live = Live(console=console, refresh_per_second=2, transient=True)
        self.shown = console.is_terminal

    def __enter__(self) -> Self:
        if self.shown:
            self.live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.shown:
            self.live.stop()

    def finished(self, row: Row) -> None:
        """Count a trial that is over."""
        self.done += row.status == "done"
        self.diverged += row.status == "diverged"
        self.failed += row.status == "failed"
        self.finished_tokens += row.tokens

    def watch(self, running: list[Running], _: list[Planned]) -> None:
        """Show the state of now."""
        if self.shown:
            self.live.update(self._picture(running))

    def _picture(self, running: list[Running]) -> Table:
        seconds = time.monotonic() - self.started
        tokens = self.finished_tokens + sum(one.tokens for one in running)
        speed = tokens / seconds if seconds > 0 else 0.0
        over = self.done + self.diverged + self.failed
        open_tokens = (self.total - over) * self.tokens_each - sum(one.tokens for one in running)
        left = _clock(open_tokens / speed) if speed > 0 else "…"
        table = Table.grid(padding=(0, 2))
        table.add_row(
            _bar(over / self.total),
            f"{over}/{self.total} trials",
            f"{self.done} done, {self.diverged} diverged, {len(running)} running, "
            f"{self.failed} failed",
            f"{speed:,.0f} tokens/s",
            f"{left} left",
        )
        for one in running:
            shape = one.planned.config.model.shape
            table.add_row(
                _bar(min(1.0, one.tokens / self.tokens_each)),
                one.planned.label,
                f"{shape.layers} layers, width {shape.width}, seed {one.planned.config.seed}",
                f"lr {one.planned.config.learning_rate:g}",
                one.planned.phase if one.node is None else f"{one.planned.phase}, on {one.node}",
            )
        return table


def _bar(share: float) -> str:
    full = round(share * BAR)
    return "━" * full + "╌" * (BAR - full)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
