"""Spikes of the loss, the gradient and the update sizes: each value against those before it."""

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from depthbench.config import Frozen
from depthbench.train.health.config import HealthConfig

Signal = Literal["loss", "gradient", "update"]
Row = NDArray[np.float64]
Window = NDArray[np.float64]
NORMAL = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""
NOTHING = math.log(1e-30)
"""Logarithm that stands for 0: what never moved cannot jump."""


class Spike(Frozen):
    """Steps at which a signal stood out. Steps are counted as finished ones, from 1."""

    signal: Signal
    block: int | None = None
    """Of an update size; None for signals of the whole model."""
    step: int
    """At which it began."""
    value: float
    """Largest so far: nats per token, norm, or norm over learning rate."""
    usual: float
    """Median of the window before it began."""
    z: float
    """Largest robust z-score of the logarithm."""
    until: int | None = None
    """First step at which it was over; None while it lasts."""


@dataclass
class Spikes:
    """Watches signals step by step; its state is small and plain, for checkpoints.

    ``z = (ln x - median) / max(1.4826 MAD, floor)`` over the last values of the same signal. A
    spike begins at ``z ≥ spike_z``, upwards only, and ends under half of it.
    """

    config: HealthConfig
    windows: dict[str, Window] = field(default_factory=dict)
    """Logarithms of the last values of every signal, oldest first."""
    lasting: list[Spike] = field(default_factory=list)

    def look(self, signal: Signal, step: int, values: list[float]) -> list[Spike]:
        """Spikes that begin, grow or end with ``values`` (a number, or one of each block)."""
        row = np.log(np.maximum(np.array(values), math.exp(NOTHING)))
        window = self.windows.get(signal, np.empty((0, len(row))))
        found: list[Spike] = []
        if len(window) >= self.config.window_least:
            found = self._compare(signal, step, values, row, window)
        self.windows[signal] = np.vstack([window, row])[-self.config.window :]
        return found

    def _compare(
        self, signal: Signal, step: int, values: list[float], row: Row, window: Window
    ) -> list[Spike]:
        floor = self.config.loss_floor if signal == "loss" else self.config.norm_floor
        median, z = robust_z(window, row, floor)
        still = {spike.block: spike for spike in self.lasting if spike.signal == signal}
        told: list[Spike] = []
        for place, score in enumerate(z.tolist()):
            block = place if signal == "update" else None
            spike = still.get(block)
            if spike is None:
                if score < self.config.spike_z or median[place] <= NOTHING:
                    continue
                usual = math.exp(median[place])
                spike = Spike(
                    signal=signal, block=block, step=step, value=values[place], usual=usual, z=score
                )
            elif score < self.config.spike_z / 2:
                told.append(spike.model_copy(update={"until": step}))
                del still[block]
                continue
            elif values[place] > spike.value:
                z_score = max(score, spike.z)
                spike = spike.model_copy(update={"value": values[place], "z": z_score})
            else:
                continue
            still[block] = spike
            told.append(spike)
        others = [spike for spike in self.lasting if spike.signal != signal]
        self.lasting = others + list(still.values())
        return told

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        lasting = [spike.resolved() for spike in self.lasting]
        windows = {signal: window.tolist() for signal, window in self.windows.items()}
        return {"windows": windows, "lasting": lasting}

    def restore(self, state: dict[str, Any]) -> None:
        """The way back from `state`."""
        self.windows = {signal: np.array(rows) for signal, rows in state["windows"].items()}
        self.lasting = [Spike.parse(one) for one in state["lasting"]]


def robust_z(window: Window, row: Row, floor: float) -> tuple[Row, Row]:
    """Median of each column of ``window``, and how far ``row`` is above it.

    In units of the column's ``1.4826 MAD``, the standard deviation if it is normal, or of
    ``floor`` where that is less.
    """
    median = np.median(window, axis=0)
    deviation = np.median(np.abs(window - median), axis=0)
    return median, (row - median) / np.maximum(NORMAL * deviation, floor)
