"""The fast bank of sources against the plain one, in everything that can happen to a graph."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from depthbench.designs import parse_design
from depthbench.designs.fast_sources import FastBank
from depthbench.designs.sources import PlainBank
from depthbench.errors import DepthbenchError
from depthbench.nn.block import Tap, Trace
from depthbench.nn.kernels import plain_kernels
from depthbench.nn.model import Model, ModelConfig
from depthbench.shapes import Shape
from tests.oracles import CONTEXT

SHAPE = Shape(layers=4, width=12, heads=2, kv_heads=1, ffn=10, vocab=19)
SPECS = {
    "attnres": {"name": "attnres"},
    "block_attnres": {"name": "block_attnres", "blocks": 3},
    "boundary": {"name": "block_attnres", "blocks": 3, "definition": "boundary"},
    "recency": {"name": "block_attnres", "blocks": 3, "definition": "recency"},
}
DESIGNS = list(SPECS)


def model_of(design: str, dtype: torch.dtype = torch.float64) -> Model:
    """Random in every parameter: at the start all queries are 0."""
    model = Model.build(ModelConfig(shape=SHAPE, design=parse_design(SPECS[design])), 0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model.to(dtype)


def tokens(seed: int = 0) -> Tensor:
    return torch.randint(19, (2, 6), generator=torch.Generator().manual_seed(seed))


def loss_of(
    model: Model, program: Sequence[int] | None = None, tap: Tap | None = None, seed: int = 0
) -> Tensor:
    logits = model(tokens(seed), program=program, tap=tap)
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens(seed + 9).flatten())


def gradients(model: Model, loss: Tensor, retain: bool = False) -> list[Tensor]:
    found = torch.autograd.grad(
        loss, list(model.parameters()), retain_graph=retain, allow_unused=True
    )
    return [torch.zeros(()) if g is None else g for g in found]


def assert_close(ours: Sequence[Tensor], theirs: Sequence[Tensor], tolerance: float) -> None:
    assert sum(g.abs().sum().item() for g in theirs) > 0
    for got, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


def edit(site: int, x: Tensor, y: Tensor) -> Tensor:
    return 0.5 * y + 0.1 * x if site == 3 else y


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("program", [None, [0, 2, 3], [0, 2, 1, 3], [0, 1, 1, 2, 3], [2], []])
@pytest.mark.parametrize("tap", [None, edit])
def test_loss_and_gradients_equal_plain(
    design: str, program: list[int] | None, tap: Tap | None
) -> None:
    model = model_of(design)
    fast = loss_of(model, program, tap)
    ours = gradients(model, fast)
    with plain_kernels():
        plain = loss_of(model, program, tap)
        theirs = gradients(model, plain)
    torch.testing.assert_close(fast, plain, rtol=1e-12, atol=1e-12)
    assert_close(ours, theirs, 1e-10)


@pytest.mark.parametrize("design", DESIGNS)
def test_float32_and_bfloat16_autocast_are_close(design: str) -> None:
    single, double = model_of(design, torch.float32), model_of(design)
    exact = gradients(double, loss_of(double))
    assert_close([g.double() for g in gradients(single, loss_of(single))], exact, 1e-3)
    with torch.autocast("cpu", torch.bfloat16):
        rough = loss_of(single)
    assert abs(rough.item() - loss_of(double).item()) < 0.05
    size = torch.cat([g.flatten() for g in exact]).norm()
    off = torch.cat(
        [(a - b).flatten() for a, b in zip(gradients(single, rough), exact, strict=True)]
    )
    assert off.norm() < 0.2 * size


@pytest.mark.parametrize("design", DESIGNS)
def test_a_graph_used_twice(design: str) -> None:
    model = model_of(design)
    loss = loss_of(model)
    expected = gradients(model, loss, retain=True)
    for _ in range(2):
        assert_close(gradients(model, loss, retain=True), expected, 0)
    (partial,) = torch.autograd.grad(loss, [model.blocks[3].attention.o.weight], retain_graph=True)  # pyright: ignore
    names = [name for name, _ in model.named_parameters()]
    assert_close([partial], [expected[names.index("blocks.3.attention.o.weight")]], 1e-14)
    assert_close(gradients(model, loss), expected, 0)


@pytest.mark.parametrize("design", DESIGNS)
def test_several_forwards_before_one_backward(design: str) -> None:
    model = model_of(design)
    alone = [gradients(model, loss_of(model, seed=seed)) for seed in (0, 1, 2)]
    together = gradients(model, loss_of(model) + loss_of(model, seed=1) + loss_of(model, seed=2))
    assert_close(together, [sum(g, torch.zeros(())) for g in zip(*alone, strict=True)], 1e-12)


@pytest.mark.parametrize("design", DESIGNS)
def test_backward_in_the_other_order(design: str) -> None:
    model = model_of(design)
    expected = [gradients(model, loss_of(model, seed=seed)) for seed in (0, 1)]
    losses = [loss_of(model, seed=seed) for seed in (0, 1)]
    assert_close(gradients(model, losses[1]), expected[1], 0)
    assert_close(gradients(model, losses[0]), expected[0], 0)


@pytest.mark.parametrize("design", DESIGNS)
def test_checkpointing_changes_nothing(design: str) -> None:
    model = model_of(design)
    expected = gradients(model, loss_of(model))
    model.checkpointing = True
    assert_close(gradients(model, loss_of(model)), expected, 1e-14)


@pytest.mark.parametrize("design", DESIGNS)
def test_a_loss_on_depth_states_and_weights(design: str) -> None:
    """States that are read twice, and gradients that enter through the softmax weights."""
    model = model_of(design)

    def total() -> Tensor:
        trace = Trace()
        logits = model(tokens(), trace=trace)
        states = torch.stack([(k + 1) * z.pow(2).mean() for k, z in enumerate(trace.depth_states)])
        weights = [route.weights.pow(2).sum() for _, route in trace.routes]  # pyright: ignore
        return logits.pow(2).mean() + states.sum() + torch.stack(weights).sum()

    ours = gradients(model, total())
    with plain_kernels():
        theirs = gradients(model, total())
    assert_close(ours, theirs, 1e-10)


@pytest.mark.parametrize("design", DESIGNS)
def test_a_state_continued_twice(design: str) -> None:
    model = model_of(design)

    def total() -> Tensor:
        context = model._context(tokens(), *model._rotary(6), padding=None)
        state = model.design.open(model.embed(tokens()), context)
        shared = model.blocks[0](state, context)
        ends = [model.blocks[k](model.design.enter(shared, 1), context) for k in (1, 2)]
        return torch.stack(
            [k * model.design.readout(e).pow(2).sum() for k, e in enumerate(ends, 1)]
        ).sum()

    ours = gradients(model, total())
    with plain_kernels():
        theirs = gradients(model, total())
    assert_close(ours, theirs, 1e-10)


def test_more_tokens_than_one_stretch() -> None:
    generator = torch.Generator().manual_seed(3)
    numbers = [torch.randn(1, 700, 250, generator=generator, dtype=torch.float64) for _ in range(3)]
    queries = torch.randn(2, 250, generator=generator, dtype=torch.float64)

    def run(fast: bool) -> list[Tensor]:
        leaves = [x.clone().requires_grad_() for x in (*numbers, queries)]
        bank = (FastBank if fast else PlainBank)(leaves[3], 1e-6)
        for value in leaves[:3]:
            bank = bank.append(value)
        mixed, weights, _ = bank.mix(1, None, None)
        return [mixed, *torch.autograd.grad((mixed.pow(3).sum() + weights.pow(2).sum()), leaves)]

    for got, expected in zip(run(True), run(False), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("design", DESIGNS)
def test_without_gradients_and_twice_differentiated(design: str) -> None:
    model = model_of(design)
    with torch.no_grad():
        loss = loss_of(model)
    torch.testing.assert_close(loss, loss_of(model), rtol=0, atol=0)
    assert not loss.requires_grad
    with pytest.raises(DepthbenchError, match=r"plain_kernels\(\)"):
        torch.autograd.grad(loss_of(model), list(model.parameters()), create_graph=True)


@pytest.mark.parametrize("design", DESIGNS)
def test_the_fast_bank_ran(design: str) -> None:
    model = model_of(design)
    state = model.design.open(model.embed(tokens()), CONTEXT)
    assert isinstance(state.bank, FastBank)
    assert state.bank.chain is not None
    assert type(state.bank.chain[0].grad_fn).__name__ == "_AppendBackward"
    with plain_kernels():
        assert not isinstance(model.design.open(model.embed(tokens()), CONTEXT).bank, FastBank)
