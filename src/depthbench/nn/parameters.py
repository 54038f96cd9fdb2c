"""How every parameter starts: declared beside it, drawn from a seed of its own."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from depthbench.errors import DepthbenchError

Fill = Callable[[Tensor, torch.Generator], None]


@dataclass(frozen=True)
class Start:
    """Start value of one parameter, and what the optimizer must know of it."""

    fill: Fill
    decay: bool
    """Whether weight decay applies."""
    over_width: bool = False
    """Whether what it makes is a sum over the model's width: then changes of its entries add up,
    and its learning rate falls with width where a `Parametrization` says so."""
    carried: bool = False
    """Whether it weighs the state that is carried over depth, not a branch or its input: then its
    changes add up over sites, and its learning rate falls with depth."""


class Parametrised(nn.Module, ABC):
    """A module that declares the start of each parameter it owns directly."""

    @abstractmethod
    def starts(self) -> dict[str, Start]:
        """Start of every own parameter, by attribute name."""


def constant(value: float) -> Start:
    """All entries equal ``value``; no weight decay."""
    return Start(partial(_fill_constant, value=value), decay=False)


def values(numbers: Sequence[float] | Sequence[Sequence[float]], *, decay: bool = False) -> Start:
    """The given numbers, entry by entry."""
    return Start(partial(_fill_values, numbers=numbers), decay=decay)


def zeros(*, decay: bool, over_width: bool = False) -> Start:
    """Zeros, for matrices whose contribution starts at nothing."""
    return Start(partial(_fill_constant, value=0.0), decay=decay, over_width=over_width)


def normal_rows(stds: Sequence[tuple[int, float]], *, over_width: bool = True) -> Start:
    """Runs of rows, each normal(0, std) truncated at 3 std; weight decay applies."""
    return Start(partial(_fill_normal_rows, stds=stds), decay=True, over_width=over_width)


def _fill_constant(tensor: Tensor, _: torch.Generator, value: float) -> None:
    tensor.fill_(value)


def _fill_values(tensor: Tensor, _: torch.Generator, numbers: Sequence[Any]) -> None:
    tensor.copy_(torch.tensor(numbers, dtype=tensor.dtype, device=tensor.device))


def _fill_normal_rows(
    tensor: Tensor, generator: torch.Generator, stds: Sequence[tuple[int, float]]
) -> None:
    for rows, (_, std) in zip(tensor.split([n for n, _ in stds]), stds, strict=True):
        nn.init.trunc_normal_(rows, 0.0, std, -3 * std, 3 * std, generator=generator)


def seed_of(seed: int, name: str) -> int:
    """Seed of the parameter ``name``: independent of all others and of their order.

    So designs that share a backbone share its start, and a shard can fill just what it holds.
    """
    return int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:7], "big")


@torch.no_grad()
def initialise(
    model: nn.Module, seed: int, place: Callable[[Tensor, Tensor], Tensor] | None = None
) -> None:
    """Fill every parameter from its `Start`, on CPU in float32, then copy it to where it lives.

    ``place(parameter, drawn)`` makes of all its entries what this process holds of them.
    Raises `TypeError` for a module with parameters but no declared starts: nothing is left to
    whatever memory held.
    """
    for module_name, module in model.named_modules():
        own = dict(module.named_parameters(recurse=False))
        if not own:
            continue
        if not isinstance(module, Parametrised) or module.starts().keys() != own.keys():
            raise TypeError(f"{module_name or type(module).__name__} does not declare {list(own)}")
        starts = module.starts()
        for name, parameter in own.items():
            start = drawn(starts[name], parameter.shape, seed, f"{module_name}.{name}")
            parameter.copy_(start if place is None else place(parameter, start))


def drawn(start: Start, shape: torch.Size, seed: int, name: str) -> Tensor:
    """The start of one parameter, by its whole name, in float32 on CPU."""
    tensor = torch.empty(shape, dtype=torch.float32, device="cpu")
    start.fill(tensor, torch.Generator().manual_seed(seed_of(seed, name)))
    return tensor


def declared(model: nn.Module) -> Iterator[tuple[nn.Parameter, Start]]:
    """Every parameter and its start, in the order of modules."""
    for module in model.modules():
        if isinstance(module, Parametrised):
            starts = module.starts()
            for name, parameter in module.named_parameters(recurse=False):
                yield parameter, starts[name]


def decayed(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The parameters with and those without weight decay, as their modules declare."""
    with_decay: list[nn.Parameter] = []
    without: list[nn.Parameter] = []
    for parameter, start in declared(model):
        (with_decay if start.decay else without).append(parameter)
    return with_decay, without


class Projection(Parametrised, nn.Linear):
    """``x Wᵀ``; the rows of ``W`` may be runs that start at different scales.

    It is an `nn.Linear` so that adapters such as LoRA can stand around it.
    """

    def __init__(
        self, width_in: int, rows: Sequence[tuple[int, float]], *, bias: bool = False
    ) -> None:
        """``rows``: (number of output features, std at the start) of each run.

        With ``bias``, ``x Wᵀ + b``, and ``b`` starts at 0.
        """
        super().__init__(width_in, sum(n for n, _ in rows), bias=bias)
        self.rows = tuple(rows)

    def reset_parameters(self) -> None:
        """Nothing: `starts` says how it starts."""

    def starts(self) -> dict[str, Start]:
        own = {"weight": normal_rows(self.rows)}
        return own if self.bias is None else own | {"bias": zeros(decay=False)}


def matrix_of(projection: nn.Module) -> Tensor:
    """The matrix of a product that is written out elsewhere.

    Raises `DepthbenchError` where something else stands for the projection: its part would be lost.
    """
    if isinstance(projection, Projection):
        return projection.weight
    raise DepthbenchError(
        f"a {type(projection).__name__} stands for a matrix of routed experts, which are computed "
        "from the matrix itself. Leave experts and routers out, such as target_modules=['qkv', 'o']"
    )
