"""DenseFormer: ``Y_i = Σ_{j ≤ i} α_ij X_j``, ``X_i = block_i(Y_{i-1})``."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from depthbench.cost.flops import count_flops
from depthbench.designs.dense import DenseRoute
from depthbench.nn.block import Trace
from depthbench.nn.model import Model
from tests.oracles import GQA, Oracle, assert_equation, config_of, random_model, tokens_of

FOUR = GQA.model_copy(update={"layers": 4})


def block(o: Oracle, number: int, h: Tensor) -> Tensor:
    """A pre-norm block, with its skip."""
    for site in (2 * number, 2 * number + 1):
        h = h + o.branch(site, o.norm(site, h))
    return h


def programmed(
    program: Sequence[int], dilation: int = 1, period: int = 1
) -> Callable[[Oracle, Tensor], Tensor]:
    """The equation for blocks that run in this order; ``X`` goes by the block that made it."""

    def run(o: Oracle, h: Tensor) -> Tensor:
        outputs = {0: h}
        for number in program:
            i = number + 1
            h = outputs[i] = block(o, number, h)
            if i % period == 0:
                known = [j for j in range(i + 1) if (i - j) % dilation == 0]
                alpha = o.own(2 * number + 1, "alpha")
                assert len(alpha) == len(known)
                h = torch.zeros_like(h)
                for weight, j in zip(alpha, known, strict=True):
                    if j in outputs:
                        h = h + weight * outputs[j]
        return h

    return run


@pytest.mark.parametrize("layers", [1, 3, 4])
@pytest.mark.parametrize("options", [{}, {"dilation": 2}, {"period": 2}, {"dilation": 3}], ids=str)
def test_logits_and_gradients(layers: int, options: dict[str, Any]) -> None:
    shape = GQA.model_copy(update={"layers": layers})
    table = {"name": "denseformer", **options}
    assert_equation(config_of(table, shape), programmed(range(layers), **options))


def test_dilation_and_period_together() -> None:
    shape = GQA.model_copy(update={"layers": 6})
    table = {"name": "denseformer", "dilation": 2, "period": 3}
    assert_equation(config_of(table, shape), programmed(range(6), 2, 3))


@pytest.mark.parametrize(
    "program", [[0, 2, 3], [1, 2, 3], [0, 1, 2], [0, 2, 1, 3], [0, 1, 1, 2, 3], [3, 0]], ids=str
)
@pytest.mark.parametrize("dilation", [1, 2])
def test_programs(program: list[int], dilation: int) -> None:
    """An unknown source has weight 0, a missing one is left out, the newest of two stands."""
    table = {"name": "denseformer", "dilation": dilation}
    assert_equation(config_of(table, FOUR), programmed(program, dilation), program)


@pytest.mark.parametrize(
    ("options", "lengths"),
    [
        ({}, [2, 3, 4, 5]),
        ({"dilation": 2}, [1, 2, 2, 3]),
        ({"dilation": 4}, [1, 1, 1, 2]),
        ({"period": 2}, [3, 5]),
        ({"dilation": 2, "period": 4}, [3]),
        ({"period": 5}, []),
    ],
    ids=str,
)
def test_start(options: dict[str, Any], lengths: list[int]) -> None:
    """``α_ii = 1``, the others 0; one for each output that the average knows."""
    model = Model.build(config_of({"name": "denseformer", **options}, FOUR), seed=0)
    alphas = [p.tolist() for name, p in model.named_parameters() if name.endswith("alpha")]
    assert alphas == [[0.0] * (length - 1) + [1.0] for length in lengths]


def test_routes_tell_what_the_stream_was_made_of() -> None:
    model, trace = random_model(config_of("denseformer")), Trace()
    model(tokens_of(GQA), trace=trace)
    seen = []
    for site, route in trace.routes:
        assert isinstance(route, DenseRoute)
        if route.weights is not None:
            seen.append((site, route.sources))
            alpha = model.get_parameter(f"blocks.{site // 2 - 1}.feedforward_connection.alpha")
            assert torch.equal(route.weights, alpha)
    assert seen == [(2, (0, 1)), (4, (0, 1, 2))]


def test_work_counts_two_for_each_entry_and_term() -> None:
    flops = count_flops(config_of("denseformer", FOUR), 16)
    assert flops.own_products == 0
    assert flops.own_sums == 2 * 16 * 32 * (2 + 3 + 4 + 5)
    sparse = {"name": "denseformer", "dilation": 2, "period": 2}
    assert count_flops(config_of(sparse, FOUR), 16).own_sums == 2 * 16 * 32 * (2 + 3)
