"""What holds of the function of any design: causality, programs, taps, traces."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from depthbench.designs import REGISTRY
from depthbench.designs.base import Connection, DesignConfig
from depthbench.designs.streams import StreamDesign
from depthbench.errors import DepthbenchError
from depthbench.nn.block import Block, Trace
from depthbench.nn.kernels import plain_kernels
from depthbench.nn.model import Model
from tests.contract.variants import VARIANTS
from tests.oracles import CONTEXT, GQA, assert_equal, config_of, random_model, rms, tokens_of

STREAMS = {
    label: config
    for label, config in VARIANTS.items()
    if issubclass(REGISTRY[config.name], StreamDesign)
}

every = pytest.mark.parametrize("design", VARIANTS.values(), ids=VARIANTS.keys())


@every
def test_causal(design: DesignConfig) -> None:
    """A changed token changes its own logits and those of later positions, of no earlier one."""
    model = random_model(config_of(design))
    tokens = tokens_of(GQA, length=10)
    before = model(tokens)
    for changed in (0, 5, 9):
        other = tokens.clone()
        other[:, changed] = (tokens[:, changed] + 1) % 99
        difference = (before - model(other)).abs().amax((0, 2))
        assert difference[:changed].sum() < 1e-12
        assert (difference[changed:] > 1e-6).all()


@every
def test_sequences_of_a_batch_are_apart(design: DesignConfig) -> None:
    model = random_model(config_of(design))
    tokens = tokens_of(GQA, batch=3)
    one = model(tokens[1:2])
    torch.testing.assert_close(model(tokens)[1:2], one, rtol=1e-11, atol=1e-12)


@every
def test_program_of_all_blocks_in_order_is_the_plain_forward(design: DesignConfig) -> None:
    model = random_model(config_of(design))
    tokens = tokens_of(GQA)
    assert torch.equal(model(tokens, program=range(3)), model(tokens))
    assert torch.equal(model(tokens, program=[0, 1, 2]), model(tokens))


@every
def test_other_programs_give_other_logits(design: DesignConfig) -> None:
    model = random_model(config_of(design))
    tokens = tokens_of(GQA)
    plain = model(tokens)
    for program in ([0, 2], [1, 2], [0, 1], [0, 2, 1], [0, 1, 1, 2], []):
        other = model(tokens, program=program)
        assert other.isfinite().all(), program
        assert (plain - other).abs().max() > 0.01 * plain.abs().max(), program


@every
def test_empty_program_reads_the_embedding_out(design: DesignConfig) -> None:
    model = random_model(config_of(design))
    tokens = tokens_of(GQA)
    state = model.design.open(model.embed(tokens), CONTEXT)
    expected = rms(model.design.readout(state), model.final_norm.gain) @ model.head.weight.T
    torch.testing.assert_close(model(tokens, program=[]), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("number", [-1, 3])
def test_program_with_a_block_that_is_not_there(number: int) -> None:
    model = random_model(config_of("prenorm"))
    with pytest.raises(DepthbenchError, match=f"block {number}, but the model has blocks 0 to 2"):
        model(tokens_of(GQA), program=[0, number])


@every
def test_tap_that_returns_the_output_changes_nothing_and_sees_every_site(
    design: DesignConfig,
) -> None:
    model = random_model(config_of(design))
    tokens = tokens_of(GQA)
    seen: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = []

    def tap(site: int, x: Tensor, y: Tensor) -> Tensor:
        seen.append((site, tuple(x.shape), tuple(y.shape)))
        return y

    assert torch.equal(model(tokens, tap=tap), model(tokens))
    assert seen == [(site, (2, 6, 32), (2, 6, 32)) for site in range(6)]


@every
def test_tap_that_edits_one_site_changes_the_logits(design: DesignConfig) -> None:
    model = random_model(config_of(design))
    tokens = tokens_of(GQA)
    plain = model(tokens)
    for edited in range(6):

        def tap(site: int, _: Tensor, y: Tensor, edited: int = edited) -> Tensor:
            return torch.zeros_like(y) if site == edited else y

        assert (plain - model(tokens, tap=tap)).abs().max() > 1e-3 * plain.abs().max(), edited


@every
def test_trace_changes_nothing_and_collects_all_depths(design: DesignConfig) -> None:
    model = random_model(config_of(design))
    tokens, trace = tokens_of(GQA), Trace()
    assert torch.equal(model(tokens, trace=trace), model(tokens))
    assert [site for site, _ in trace.routes] == list(range(6))
    assert len(trace.depth_states) == 4
    widths = {state.shape for state in trace.depth_states}
    assert len(widths) == 1
    assert widths.pop()[:2] == (2, 6)
    for i in range(3):
        assert not torch.allclose(trace.depth_states[i], trace.depth_states[i + 1])


@pytest.mark.parametrize("design", STREAMS.values(), ids=STREAMS.keys())
def test_streams_have_an_axis_of_their_own(design: DesignConfig) -> None:
    model = random_model(config_of(design))
    assert isinstance(model.design, StreamDesign)
    state = model.design.open(model.embed(tokens_of(GQA)), CONTEXT)
    assert state.shape == (2, 6, model.design.streams, 32)
    for block in range(3):
        for connection in connections_of(model, block):
            x, route = connection.read(state)
            state = connection.write(state, torch.ones_like(x), route, None)
            assert state.shape == (2, 6, model.design.streams, 32)


def connections_of(model: Model, number: int) -> list[Connection[Any]]:
    block = model.blocks[number]
    assert isinstance(block, Block)
    return [connection for _, _, connection in block.sites()]


@every
def test_gradients_through_the_states_of_a_trace(design: DesignConfig) -> None:
    """States that a trace forms on the way carry gradients, in two backward passes, as by
    torch's own operations.
    """
    model = random_model(config_of(design))
    results: list[dict[str, Tensor | None]] = []
    for kernels in (nullcontext, plain_kernels):
        model.zero_grad()
        with kernels():
            trace = Trace()
            total = model(tokens_of(GQA), trace=trace).square().sum()
            for state in trace.depth_states:
                total = total + (state * torch.linspace(-1, 1, state.shape[-1])).sum()
            total.backward(retain_graph=True)
            total.backward()
        results.append({name: p.grad for name, p in model.named_parameters()})
    fast, plain = results
    for name, gradient in plain.items():
        if gradient is not None:
            assert_equal(fast[name], gradient, name)
