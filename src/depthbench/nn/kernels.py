"""Which of two equal computations runs: the plain one, or a function with its own backward."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

import torch
from torch import Tensor

from depthbench.errors import DepthbenchError

_plain: ContextVar[bool] = ContextVar("plain_kernels", default=False)
_elsewhere: ContextVar[bool] = ContextVar("elsewhere", default=False)
_held: ContextVar[bool] = ContextVar("held", default=False)


@contextmanager
def plain_kernels() -> Iterator[None]:
    """Inside, every model runs on torch's own differentiable operations alone.

    For forward-mode and functional derivatives (`torch.func`), and to check the fast versions.
    """
    token = _plain.set(True)
    try:
        yield
    finally:
        _plain.reset(token)


@contextmanager
def other_device() -> Iterator[None]:
    """Inside, what runs on CPU is what runs on a GPU: torch's own operations, for costing."""
    token = _elsewhere.set(True)
    try:
        yield
    finally:
        _elsewhere.reset(token)


@contextmanager
def held() -> Iterator[None]:
    """Inside, what a design computes from the state is held where it is: see `hold`.

    Derivatives there are those of the linear map that a design is once its coefficients and the
    scales of its norms are fixed. For path weights.
    """
    token = _held.set(True)
    try:
        with plain_kernels():
            yield
    finally:
        _held.reset(token)


def hold(coefficient: Tensor) -> Tensor:
    """``coefficient`` of a sum of states: without derivative inside `held`."""
    return coefficient.detach() if holding() else coefficient


def stopped(x: Tensor) -> Tensor:
    """``x`` behind a design's own stop-gradient, which `held` looks through: it is no weight."""
    return x if holding() else x.detach()


def holding() -> bool:
    """Whether coefficients are held: never inside `torch.compile`, which cannot ask."""
    return not torch.compiler.is_compiling() and _held.get()


def eager(tensor: Tensor) -> bool:
    """Whether ``tensor`` has numbers that may decide shapes: not under `torch.compile` or on meta.

    Never inside `plain_kernels`.
    """
    return not (tensor.is_meta or plain_only())


def plain_only() -> bool:
    """Whether torch's own operations alone may run: in `plain_kernels` and in `torch.compile`."""
    return torch.compiler.is_compiling() or _plain.get()


def fast(tensor: Tensor) -> bool:
    """Whether the version with its own backward runs on ``tensor``.

    On CPU, outside `plain_kernels` and outside `torch.compile`, which fuses the plain one better.
    """
    return tensor.device.type == "cpu" and not plain_only() and not _elsewhere.get()


def no_autocast(tensor: Tensor) -> AbstractContextManager[object]:
    """Autocast off on ``tensor``'s device; costs next to nothing where it is off already."""
    kind = tensor.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def plain_gradients(
    plain: Callable[..., Tensor | tuple[Tensor, ...]],
    inputs: Sequence[Tensor],
    needed: Sequence[bool],
    gradients: Sequence[Tensor],
) -> list[Tensor | None]:
    """Gradients of ``plain`` that can be differentiated again, None where not ``needed``.

    What a hand-written backward returns when it runs with ``create_graph=True``.
    """
    wanted = [x for x, need in zip(inputs, needed, strict=True) if need]
    with torch.enable_grad(), no_autocast(inputs[0]):
        found = iter(torch.autograd.grad(plain(*inputs), wanted, gradients, create_graph=True))
    return [next(found) if need else None for need in needed]


def first_order_only(what: str) -> None:
    """Raise `DepthbenchError` in a backward that runs with ``create_graph=True``."""
    if torch.is_grad_enabled():
        raise DepthbenchError(
            f"second derivatives through {what} need torch's own operations: "
            "run forward and backward inside depthbench.nn.kernels.plain_kernels()"
        )
