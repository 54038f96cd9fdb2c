"""Activations that are computed again in the backward pass instead of kept."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from depthbench.nn.branch import Context, Load


def recomputed(run: Callable[..., Any], context: Context, *inputs: Any) -> Any:
    """``run(context, *inputs)``, computed again in the backward pass instead of kept.

    Each run notes loads in a list of its own, and only the first one's are handed on.
    """

    def apart(*inputs: Any) -> tuple[Any, list[Load]]:
        loads: list[Load] = []
        own = replace(context, loads=None if context.loads is None else loads)
        return run(own, *inputs), loads

    # to stop in the middle of a compiled graph would leave the autocast that it has entered
    with set_checkpoint_early_stop(context.compiled is None):
        result, loads = checkpoint(apart, *inputs, use_reentrant=False)
    if context.loads is not None:
        context.loads.extend(loads)
    return result
