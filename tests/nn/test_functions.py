"""First and second derivatives of every function that has its own backward, in float64.

Found by looking through the package: a new function fails here until it has a case.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import depthbench.designs
import depthbench.nn
from depthbench.designs.fast_sinkhorn import sinkhorn_fast
from depthbench.designs.fast_sources import FastBank
from depthbench.designs.fast_streams import (
    mix_and_write_fast,
    normed_projection_fast,
    read_streams_fast,
)
from depthbench.designs.sinkhorn import sinkhorn_plain
from depthbench.designs.sources import PlainBank, source_logits
from depthbench.designs.streams import (
    mix_and_write_plain,
    normed_projection_plain,
    read_streams_plain,
)
from depthbench.errors import DepthbenchError
from depthbench.nn.attention import attend_time_and_depth_plain
from depthbench.nn.branch import Entry
from depthbench.nn.fast_depth import attend_time_and_depth_fast
from depthbench.nn.fast_norm import rms_norm_fast, rms_norm_plain
from depthbench.nn.fast_swiglu import gate_fast, gate_plain
from depthbench.nn.loss import loss_in_chunks
from depthbench.nn.rope import pair_turns, rotary_table, turn_pairs, turn_pairs_plain

TURNS = pair_turns(
    *rotary_table(3, 6, 10000.0, torch.device("cpu"), torch.float64), heads=2, tail=4
)


def noise(*axes: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(axes, generator=generator, dtype=torch.float64).requires_grad_()


def spread_out(*axes: int) -> Tensor:
    """The same numbers for every batch and time, as a view that repeats one memory."""
    return noise(*axes[2:]).expand(axes)


def mixes_of(kind: type[FastBank] | type[PlainBank]) -> Callable[..., tuple[Tensor, ...]]:
    """Two mixes over a bank, the second also over a running sum; a source made of the first."""

    def run(first: Tensor, second: Tensor, running: Tensor, queries: Tensor) -> tuple[Tensor, ...]:
        bank = kind(queries, 0.1).append(first).append(second)
        one, weights, chain = bank.mix(0, None, None)
        bank = replace(bank, chain=chain).append(2 * one)  # pyright: ignore[reportArgumentType]
        logit = source_logits(running, queries[1:2], 0.1)[..., 0]
        two, more, _ = bank.mix(1, running, logit)
        return one, weights, two, more

    return run


def depth_attention(attend: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Two query heads for each key, two entries over depth."""

    def run(q: Tensor, k: Tensor, v: Tensor, own: Tensor, *bank: Tensor) -> Tensor:
        return attend(q, k, v, own, (Entry(bank[0], bank[1]), Entry(bank[2], bank[3])))

    return run


TARGETS = torch.tensor([[4, 0, 2]])
SOURCES = (noise(1, 2, 5), noise(1, 2, 5, seed=1), noise(1, 2, 5, seed=2), noise(2, 5, seed=3))

Case = tuple[Callable[..., Any], Callable[..., Any], tuple[Tensor, ...]]

CASES: dict[str, list[Case]] = {
    "nn.fast_norm._RMSNorm": [
        (
            lambda x, gain: rms_norm_fast(x, gain, 0.1),
            lambda x, gain: rms_norm_plain(x, gain, 0.1),
            (noise(2, 3, 5), noise(5, seed=1)),
        )
    ],
    "nn.fast_swiglu._Gate": [(gate_fast, gate_plain, (noise(2, 3, 8),))],
    "nn.rope._TurnPairs": [
        (
            lambda x: turn_pairs(x, TURNS),
            lambda x: turn_pairs_plain(x, TURNS.turn),
            (noise(2, 3, 16),),
        )
    ],
    "nn.fast_depth._AttendTimeAndDepth": [
        (
            depth_attention(attend_time_and_depth_fast),
            depth_attention(attend_time_and_depth_plain),
            tuple(
                noise(2, 3, heads, 4, seed=n) for n, heads in enumerate((4, 2, 2, 4, 2, 2, 2, 2))
            ),
        )
    ],
    "designs.fast_sinkhorn._Sinkhorn": [
        (
            lambda x, rounds=rounds: sinkhorn_fast(x, rounds),
            lambda x, rounds=rounds: sinkhorn_plain(x, rounds),
            (noise(2, 3, 4, 4),),
        )
        for rounds in (1, 3)
    ],
    "designs.fast_streams._Read": [
        (read_streams_fast, read_streams_plain, (noise(1, 2, 4, width), read))
        for width in (3, 130)
        for read in (noise(1, 2, 4, seed=1), spread_out(1, 2, 4))
    ],
    "designs.fast_streams._Write": [
        (
            mix_and_write_fast,
            mix_and_write_plain,
            (noise(1, 2, 4, width), mix, noise(1, 2, width, seed=2), noise(1, 2, 4, seed=3)),
        )
        for width in (3, 130)
        for mix in (noise(1, 2, 4, 4, seed=1), spread_out(1, 2, 4, 4))
    ],
    "designs.fast_streams._NormedProjection": [
        (
            lambda x, weight: normed_projection_fast(x, weight, 0.1),
            lambda x, weight: normed_projection_plain(x, weight, 0.1),
            (noise(1, 2, 4, 5), noise(6, 5, seed=1)),
        )
    ],
    "nn.loss._MeanLoss": [
        (
            lambda x, weight: loss_in_chunks(TARGETS, 5, 2)(x, weight, 0.5),
            lambda x, weight: nn.functional.cross_entropy(
                0.5 * nn.functional.linear(x, weight[:5]).flatten(0, 1), TARGETS.flatten()
            ),
            (noise(1, 3, 4), noise(6, 4, seed=1)),
        )
    ],
    "designs.fast_sources._Append": [(mixes_of(FastBank), mixes_of(PlainBank), SOURCES)],
    "designs.fast_sources._Mix": [(mixes_of(FastBank), mixes_of(PlainBank), SOURCES)],
}

FIRST_ORDER = {
    "designs.fast_sources._Append",
    "designs.fast_sources._Mix",
    "nn.fast_depth._AttendTimeAndDepth",
    "nn.loss._MeanLoss",
}
"""Their second derivatives are an error that says how to get them."""


def functions_of_the_package() -> set[str]:
    """Every `torch.autograd.Function` that is defined in the numeric core."""
    found = set()
    for package in (depthbench.nn, depthbench.designs):
        for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(info.name)
            for name, value in vars(module).items():
                if isinstance(value, type) and issubclass(value, torch.autograd.Function):
                    found.add(f"{value.__module__}.{name}".removeprefix("depthbench."))
    return found


def test_every_function_has_a_case() -> None:
    assert functions_of_the_package() == CASES.keys()


@pytest.mark.parametrize(
    ("name", "fast", "plain", "inputs"),
    [pytest.param(n, *case, id=f"{n}-{i}") for n, c in CASES.items() for i, case in enumerate(c)],
)
def test_derivatives(
    name: str, fast: Callable[..., Any], plain: Callable[..., Any], inputs: tuple[Tensor, ...]
) -> None:
    torch.testing.assert_close(fast(*inputs), plain(*inputs), rtol=1e-12, atol=1e-14)
    apart = tuple(x.detach().clone().contiguous().requires_grad_() for x in inputs)
    assert torch.autograd.gradcheck(fast, apart, fast_mode=True)
    if name in FIRST_ORDER:
        with pytest.raises(DepthbenchError, match=r"second derivatives .* inside .*plain_kernels"):
            gradients(fast, apart, create_graph=True)
    else:
        assert torch.autograd.gradgradcheck(fast, apart, fast_mode=True)
    for one, other in zip(gradients(fast, inputs), gradients(plain, inputs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-13)


def gradients(
    function: Callable[..., Any], inputs: tuple[Tensor, ...], create_graph: bool = False
) -> tuple[Tensor, ...]:
    """Of a fixed weighing of all outputs; by the backward that training uses, as a rule."""
    outputs = function(*inputs)
    total = sum(
        (y * torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view_as(y)).sum()
        for y in (outputs if isinstance(outputs, tuple) else (outputs,))
    )
    assert isinstance(total, Tensor)
    return torch.autograd.grad(total, inputs, create_graph=create_graph)
