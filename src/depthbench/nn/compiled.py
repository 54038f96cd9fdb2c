"""`torch.compile` around what a model repeats: its blocks, or its branches where states grow.

Blocks of a kind share one graph, because nothing in it depends on a block's number. A state that
gains a source at every site would need a graph for each depth, so designs with such states
(``checkpoint_unit = "branch"``) have their branches compiled and mix their sources eagerly.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from depthbench.nn.branch import Context

Backend = str | Callable[..., Any]
"""A name that torch knows, or what takes a graph and example inputs and returns a function."""


class Compiler:
    """Compiled versions of functions, made at their first call. A graph break is an error.

    torch counts the graphs of a function over all models of a process and gives up at eight, so a
    new compiler makes it forget them.
    """

    def __init__(self, backend: Backend = "inductor") -> None:
        torch.compiler.reset()
        # the compiler looks at the gradients of all that it is given, a block's input among them
        warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not")
        self.backend = backend
        self._made: dict[Callable[..., Any], Callable[..., Any]] = {}

    def __call__(self, run: Callable[..., Any], context: Context, *inputs: Any) -> Any:
        """``run(context, *inputs)``, compiled; loads are noted as without."""
        if run not in self._made:
            self._made[run] = torch.compile(run, backend=self.backend, fullgraph=True)
        # a list that grows from block to block would be another graph in each
        apart = None if context.loads is None else []
        result = self._made[run](replace(context, loads=apart, compiled=None), *inputs)
        if context.loads is not None and apart is not None:
            context.loads.extend(apart)
        return result


def compile_failed(error: Exception) -> bool:
    """Whether ``error`` comes from the compiler, not from what it compiled."""
    # importing these takes a second, and only those who compile need them
    from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException

    return isinstance(error, FailOnRecompileLimitHit | TorchDynamoException)
