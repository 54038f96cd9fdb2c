"""Dynamic dense: ``Y_i = Σ_j A_ij(X_i) X_j``, ``A_i(X) = W2 GELU(W1 RMSNorm(X)) + a_i``."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from depthbench.cost.flops import count_flops
from depthbench.designs.dense import DenseRoute
from depthbench.nn.block import Trace
from depthbench.nn.model import Model
from tests.designs.test_denseformer import block
from tests.oracles import GQA, Oracle, assert_equation, config_of, random_model, rms, tokens_of

FOUR = GQA.model_copy(update={"layers": 4})


def weights_of(o: Oracle, number: int, token: Tensor) -> Tensor:
    """``A_i`` of one token."""
    site = 2 * number + 1
    inner = o.own(site, "inner") @ rms(token)
    gelu = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
    return o.own(site, "outer") @ gelu + o.own(site, "static")


def programmed(program: Sequence[int]) -> Callable[[Oracle, Tensor], Tensor]:
    """The equation for blocks that run in this order; ``X`` goes by the block that made it."""

    def run(o: Oracle, h: Tensor) -> Tensor:
        outputs = {0: h}
        for number in program:
            h = outputs[number + 1] = block(o, number, h)
            rows = []
            for t in range(len(h)):
                weights = weights_of(o, number, h[t])
                assert len(weights) == number + 2
                there = [j for j in range(number + 2) if j in outputs]
                rows.append(sum(weights[j] * outputs[j][t] for j in there))
            h = torch.stack(rows)  # type: ignore[arg-type]  # sum() is typed with its 0
        return h

    return run


@pytest.mark.parametrize("layers", [1, 3, 4])
@pytest.mark.parametrize("expand", [1, 3])
def test_logits_and_gradients(layers: int, expand: int) -> None:
    shape = GQA.model_copy(update={"layers": layers})
    table = {"name": "dynamic_dense", "expand": expand}
    assert_equation(config_of(table, shape), programmed(range(layers)))


@pytest.mark.parametrize("program", [[0, 2, 3], [0, 1], [0, 2, 1, 3], [0, 1, 1, 2, 3]], ids=str)
def test_programs(program: list[int]) -> None:
    assert_equation(config_of("dynamic_dense", FOUR), programmed(program), program)


def test_start() -> None:
    model = Model.build(config_of({"name": "dynamic_dense", "expand": 2}, FOUR), seed=0)
    for number in range(4):
        own = f"blocks.{number}.feedforward_connection."
        count = number + 2
        inner = model.get_parameter(own + "inner")
        assert inner.shape == (2 * count, 32)
        assert inner.std().item() == pytest.approx(32**-0.5, rel=0.2)
        assert not model.get_parameter(own + "outer").any()
        assert model.get_parameter(own + "outer").shape == (count, 2 * count)
        assert model.get_parameter(own + "static").tolist() == [0.0] * (count - 1) + [1.0]


def test_weights_depend_on_the_token_and_not_on_its_scale() -> None:
    model, trace = random_model(config_of("dynamic_dense")), Trace()
    model(tokens_of(GQA), trace=trace)
    route = trace.routes[4][1]
    assert isinstance(route, DenseRoute)
    assert route.weights is not None
    assert route.sources == (0, 1, 2)
    assert route.weights.shape == (3, 2, 6)
    assert (route.weights[:, 0, 0] != route.weights[:, 0, 1]).all()
    end = model.blocks[1].feedforward_connection
    x = torch.randn(1, 2, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(end.weights(1e4 * x), end.weights(1e3 * x), rtol=1e-9, atol=1e-9)  # pyright: ignore


def test_work() -> None:
    flops = count_flops(config_of("dynamic_dense", FOUR), 16)
    counts = [2, 3, 4, 5]
    assert flops.own_products == 2 * 16 * sum(32 * n + n * n for n in counts)
    assert flops.own_sums == 2 * 16 * 32 * sum(counts)
