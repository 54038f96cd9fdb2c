"""nGPT's residual: ``h ← Norm(h + α ⊙ (Norm(F(h)) - h))`` on the sphere of radius sqrt(d)."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from depthbench.cost.flops import count_flops
from depthbench.nn.block import Trace
from depthbench.nn.count import count_parameters
from depthbench.nn.model import Model
from tests.oracles import GQA, Oracle, assert_equation, config_of, random_model, rms, tokens_of


def equation_of(alpha: float, scale: float) -> Callable[[Oracle, Tensor], Tensor]:
    """With steps ``|stored · alpha / scale|``."""

    def equation(o: Oracle, h: Tensor) -> Tensor:
        h = rms(h)
        for site in range(o.shape.sites):
            step = torch.sqrt((o.own(site, "step") * alpha / scale) ** 2)
            y = rms(o.branch(site, h))
            h = rms((1 - step) * h + step * y)
        return h

    return equation


@pytest.mark.parametrize(
    ("options", "alpha", "scale"),
    [({}, 0.05, 32**-0.5), ({"alpha": 0.2}, 0.2, 32**-0.5), ({"scale": 0.5}, 0.05, 0.5)],
)
def test_logits_and_gradients(options: dict[str, float], alpha: float, scale: float) -> None:
    assert_equation(config_of({"name": "ngpt", **options}), equation_of(alpha, scale))


@pytest.mark.parametrize("options", [{}, {"alpha": 0.2}, {"scale": 0.5}])
def test_scale_moves_the_stored_start_and_not_the_step(options: dict[str, float]) -> None:
    model = Model.build(config_of({"name": "ngpt", **options}), seed=0, dtype=torch.float64)
    stored = model.blocks[1].attention_connection.step
    scale, alpha = options.get("scale", 32**-0.5), options.get("alpha", 0.05)
    torch.testing.assert_close(stored, torch.full_like(stored, scale), rtol=1e-7, atol=0)
    connection = model.blocks[1].attention_connection
    h, y = torch.zeros(1, 1, 32).double(), torch.zeros(1, 1, 32).double()
    h[..., 0] = y[..., 1] = 32**0.5
    written = connection.write(h, y, connection.read(h)[1], None)
    assert (written[0, 0, 1] / written[0, 0, 0]).item() == pytest.approx(alpha / (1 - alpha), 1e-6)


def test_every_state_is_on_the_sphere() -> None:
    trace = Trace()
    random_model(config_of("ngpt"))(tokens_of(GQA), trace=trace)
    for state in trace.depth_states:
        length = state.square().sum(-1).sqrt()
        torch.testing.assert_close(length, torch.full_like(length, 32**0.5), rtol=1e-4, atol=0)


def test_steps_take_the_place_of_the_norms_gains() -> None:
    names = [name for name, _ in Model.on_meta(config_of("ngpt")).named_parameters()]
    assert [name for name in names if "norm" in name] == ["final_norm.gain"]
    assert count_parameters(config_of("ngpt")).own == 0


def test_stated_sums() -> None:
    """Two weighted terms a site."""
    assert count_flops(config_of("ngpt"), 10).own_sums == 4 * 10 * 32 * 6
