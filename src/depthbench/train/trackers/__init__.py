"""Adapters to tools that draw metrics. ``metrics.jsonl`` stays the truth; these hear of it.

A new one is a file with a `Tracker` and a line in `REGISTRY`.
"""

from collections.abc import Sequence

from depthbench.errors import unknown
from depthbench.train.trackers.base import Tracker
from depthbench.train.trackers.relay import Relay
from depthbench.train.trackers.tensorboard import TensorBoard
from depthbench.train.trackers.trackio import Trackio
from depthbench.train.trackers.wandb import WeightsAndBiases

REGISTRY: dict[str, type[Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "trackio": Trackio,
}


def parse_trackers(text: str | None) -> tuple[str, ...]:
    """Names from ``tensorboard,wandb``, each ready to work.

    Raises `DepthbenchError` for a name that is not there, a package that is not installed and a
    tool that would ask for a login.
    """
    if text is None:
        return ()
    names = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    for name in names:
        if name not in REGISTRY:
            raise unknown("tracker", name, REGISTRY)
        REGISTRY[name].check()
    return names


def listeners(names: Sequence[str]) -> list[Relay]:
    """A listener of a trial's metrics for each of these trackers."""
    return [Relay(REGISTRY[name]()) for name in names]
