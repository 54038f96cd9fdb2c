"""Momentum: ``h ← μ·sg(h) + (1-μ)·y`` over depth, over a window, or over segments of the text."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from depthbench.designs.base import Connection, Route
from depthbench.errors import DepthbenchError
from depthbench.nn.block import Block, Trace
from depthbench.nn.branch import Context
from depthbench.nn.model import Model
from depthbench.shapes import Shape
from tests.oracles import GQA, Oracle, assert_equation, config_of, random_model, tokens_of


def over_depth(
    mu: float = 0.9, stop_gradient: bool = True, window: int = 1
) -> Callable[[Oracle, Tensor], Tensor]:
    """The equation with these options, all states kept."""

    def equation(o: Oracle, h: Tensor) -> Tensor:
        states = [h]
        for site in range(o.shape.sites):
            y = o.branch(site, o.norm(site, states[-1]))
            last = states[-window:]
            history = sum(last[1:], last[0]) / len(last)
            if stop_gradient:
                history = history.detach()
            states.append(mu * history + (1 - mu) * y)
        return states[-1]

    return equation


def over_segments(
    segment: int, mu: float = 0.9, stop_gradient: bool = True
) -> Callable[[Oracle, Tensor], Tensor]:
    """The equation with these options, token by token: ``c`` is a mean of the ``m`` as added."""

    def equation(o: Oracle, h: Tensor) -> Tensor:
        for site in range(o.shape.sites):
            y = o.branch(site, o.norm(site, h))
            moved: list[Tensor] = []
            for t in range(len(h)):
                s = t // segment
                if s == 0:
                    moved.append(y[t])
                    continue
                before = moved[(s - 1) * segment : s * segment]
                c = torch.stack(before).mean(0)
                moved.append(mu * (c.detach() if stop_gradient else c) + (1 - mu) * y[t])
            h = h + torch.stack(moved)
        return h

    return equation


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mu": 0.3},
        {"mu": 0.0},
        {"stop_gradient": False},
        {"window": 1},
        {"window": 2},
        {"window": 3, "mu": 0.5, "stop_gradient": False},
        {"window": 50},
    ],
    ids=str,
)
def test_logits_and_gradients_over_depth(options: dict[str, Any]) -> None:
    assert_equation(config_of({"name": "momentum", **options}), over_depth(**options))


@pytest.mark.parametrize(
    "options",
    [
        {"segment": 1},
        {"segment": 2},
        {"segment": 4, "mu": 0.3},
        {"segment": 2, "stop_gradient": False},
        {"segment": 64},
    ],
    ids=str,
)
def test_logits_and_gradients_over_segments(options: dict[str, Any]) -> None:
    table = {"name": "momentum", "over": "segments", **options}
    assert_equation(config_of(table), over_segments(**options))


def test_a_window_of_one_is_the_exponential_average() -> None:
    models = [random_model(config_of({"name": "momentum", **x})) for x in ({}, {"window": 1})]
    assert torch.equal(models[0](tokens_of(GQA)), models[1](tokens_of(GQA)))


def connection_of(options: dict[str, Any], length: int) -> tuple[Connection[Any], Any, Tensor]:
    """The first connection, a state with a leaf as stream, and the leaf."""
    model = random_model(config_of({"name": "momentum", **options}))
    block = model.blocks[0]
    assert isinstance(block, Block)
    leaf = torch.linspace(-1, 1, length * 32, dtype=torch.float64).view(1, length, 32)
    leaf.requires_grad_()
    empty = torch.empty(length, 0)
    return block.attention_connection, model.design.open(leaf, Context(empty, empty)), leaf


@pytest.mark.parametrize(("options", "share"), [({}, 0.9), ({"window": 3}, 0.3)], ids=str)
@pytest.mark.parametrize("stop", [True, False])
def test_gradient_through_the_history_over_depth(
    options: dict[str, Any], share: float, stop: bool
) -> None:
    """Exactly zero where it is stopped; the state's own share of the history where not."""
    connection, state, leaf = connection_of(options | {"stop_gradient": stop}, 4)
    y = torch.ones(1, 4, 32, dtype=torch.float64, requires_grad=True)
    states = [state]
    for _ in range(3 if options else 1):
        states.append(connection.write(states[-1], y, Route(), None))
    last = states[-1].stream.sum()
    (gradient,) = torch.autograd.grad(last, states[-2].stream, allow_unused=True, retain_graph=True)
    if stop:
        assert gradient is None
        assert torch.autograd.grad(last, leaf, allow_unused=True) == (None,)
    else:
        assert gradient is not None
        torch.testing.assert_close(gradient, torch.full_like(gradient, share))


@pytest.mark.parametrize("stop", [True, False])
def test_gradient_through_the_history_over_segments(stop: bool) -> None:
    """Exactly zero from one segment to the next where it is stopped."""
    options = {"over": "segments", "segment": 2, "stop_gradient": stop}
    connection, state, _ = connection_of(options, 6)
    y = torch.ones(1, 6, 32, dtype=torch.float64, requires_grad=True)
    stream = connection.write(state, y, Route(), None).stream
    (gradient,) = torch.autograd.grad(stream[:, 4:].sum(), y)
    weights = gradient[0, :, 0]
    own = torch.tensor([0.1, 0.1], dtype=torch.float64)
    torch.testing.assert_close(weights[4:], own)
    if stop:
        assert not weights[:4].any()
    else:
        carried = [0.9 * 0.9, 0.9 * 0.9, 0.9 * 0.1, 0.9 * 0.1]
        torch.testing.assert_close(weights[:4], torch.tensor(carried, dtype=torch.float64))


DEEP = Shape(layers=250, width=16, heads=1, kv_heads=1, ffn=8, vocab=11)
"""500 sites."""


def averaged(
    start: Tensor, outputs: list[Tensor], over: str, window: int, dtype: torch.dtype
) -> Tensor:
    """The last state of the recurrence with everything kept in ``dtype``; segments of 2 tokens."""
    states = [start.to(dtype)]
    for y in (y.to(dtype) for y in outputs):
        if over == "segments":
            moved = y.clone()
            for t in range(2, y.shape[1]):
                past = moved[:, t // 2 * 2 - 2 : t // 2 * 2].mean(1)
                moved[:, t] = 0.9 * past + (1 - 0.9) * y[:, t]
            states.append(states[-1] + moved)
        else:
            mean = torch.stack(states[-window:]).mean(0)
            states.append(0.9 * mean + (1 - 0.9) * y)
    return states[-1].double()


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("over", "window", "drift"), [("depth", 1, 4e-4), ("depth", 8, 3e-4), ("segments", 1, 1e-3)]
)
def test_history_does_not_drift_over_500_sites(
    over: str, window: int, drift: float, low: torch.dtype
) -> None:
    """A model built in half precision, against float64 on the same branch outputs.

    A history kept in half precision drifts by ``drift`` (bfloat16: by eight times it) and more;
    ours by less than a thousandth of that.
    """
    options = {"over": over} | ({"segment": 2} if over == "segments" else {"window": window})
    model = Model.build(config_of({"name": "momentum", **options}, DEEP), 0, dtype=low)
    generator = torch.Generator().manual_seed(0)
    outputs = [1 + torch.randn(2, 6, 16, generator=generator).to(low) for _ in range(500)]
    trace = Trace()
    with torch.no_grad():
        tokens = tokens_of(DEEP)
        model(tokens, tap=lambda site, x, y: outputs[site], trace=trace)
        start = model.embed(tokens)
    exact = averaged(start, outputs, over, window, torch.float64)
    errors = {
        name: ((state - exact).norm() / exact.norm()).item()
        for name, state in (
            ("ours", trace.depth_states[-1].double()),
            ("half", averaged(start, outputs, over, window, low)),
        )
    }
    assert trace.depth_states[-1].dtype == torch.float32
    assert errors["half"] > drift * (8 if low == torch.bfloat16 else 1)
    assert errors["ours"] < 1e-3 * errors["half"]


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("over", ["depth", "segments"])
def test_branches_and_readout_are_in_the_parameters_dtype(over: str, low: torch.dtype) -> None:
    model = Model.build(config_of({"name": "momentum", "over": over, "segment": 2}), 0, dtype=low)
    seen: set[torch.dtype] = set()

    def tap(site: int, x: Tensor, y: Tensor) -> Tensor:
        seen.update({x.dtype, y.dtype})
        return y

    trace = Trace()
    logits = model(tokens_of(GQA), tap=tap, trace=trace)
    assert seen == {low} == {logits.dtype}
    assert {state.dtype for state in trace.depth_states} == {torch.float32}
    logits.float().sum().backward()


def test_memory_is_two_vectors_a_site_in_float32_or_better() -> None:
    table = {"name": "momentum", "over": "segments"}
    model = Model.build(config_of(table), 0, dtype=torch.bfloat16)
    for capacity in (8, 80):
        cache = model.cache(batch=3, capacity=capacity)
        sizes = [
            sum(t.numel() * t.element_size() for t in memory.tensors())
            for memory in cache.connections
            if memory is not None
        ]
        assert sizes == [2 * 3 * 32 * 4] * 6
    assert Model.on_meta(config_of("momentum")).cache(3, 8).connections == [None] * 6


@pytest.mark.parametrize("segment", [1, 3, 4])
@pytest.mark.parametrize("sizes", [(1,) * 14, (3, 1, 5, 5), (8, 6)], ids=str)
def test_segments_are_counted_from_the_first_text_in_steps_too(
    segment: int, sizes: tuple[int, ...]
) -> None:
    table = {"name": "momentum", "over": "segments", "segment": segment}
    model = random_model(config_of(table))
    tokens, padding = tokens_of(GQA, batch=3, length=14), torch.tensor([0, 2, 5])
    cache = model.cache(3, 14, padding=padding)
    with torch.no_grad():
        steps = torch.cat([model.step(part, cache) for part in tokens.split(list(sizes), 1)], 1)
        for row, edge in enumerate(padding.tolist()):
            expected = model(tokens[row : row + 1, edge:])[0]
            assert (steps[row, edge:] - expected).abs().max() < 1e-10 * expected.abs().max()


def test_window_over_segments_is_refused() -> None:
    with pytest.raises(DepthbenchError) as error:
        Model.on_meta(config_of({"name": "momentum", "over": "segments", "window": 3}))
    assert str(error.value) == (
        'momentum: window = 3 averages over depth, but over = "segments" does not. '
        'Leave window out, or set over = "depth"'
    )
