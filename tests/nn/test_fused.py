"""Kernels of other packages: their layout is taken to ours, and they compute the same.

The packages' functions as their documentation writes them stand in for them everywhere. The
packages' own run where they are installed and there is a GPU; those of liger-kernel also in
Triton's interpreter on CPU: ``TRITON_INTERPRET=1 pytest tests/nn/test_fused.py``.
"""

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from depthbench.designs.base import DesignConfig
from depthbench.designs.sources import PlainBank
from depthbench.designs.streams import mix_and_write_plain, read_streams_plain
from depthbench.nn import fused
from depthbench.nn.fused import PACKAGES, PLAIN, Kernels, load_kernels, mean_loss, mixer
from depthbench.nn.kernels import plain_kernels
from depthbench.nn.model import Model
from tests.contract.variants import VARIANTS
from tests.fast import assert_same
from tests.oracles import GQA, config_of, tokens_of

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def liger_mhc_pre(x: Tensor, h_pre: Tensor) -> Tensor:
    """``x_in = sum_i h_pre[i] * x[i]``."""
    return (h_pre.unsqueeze(-1) * x).sum(-2)


def liger_mhc_post_res(x: Tensor, f_out: Tensor, h_post: Tensor, h_res: Tensor) -> Tensor:
    """``x_out[o] = sum_i h_res[o,i] * x[i] + h_post[o] * f_out``."""
    kept = (h_res.unsqueeze(-1) * x.unsqueeze(-3)).sum(-2)
    return kept + h_post.unsqueeze(-1) * f_out.unsqueeze(-2)


def fused_attnres(
    query: Tensor,
    residuals: Sequence[Tensor],
    rms_weight: Tensor,
    rms_eps: float,
    return_weights: bool,
) -> tuple[Tensor, Tensor]:
    """``k_l = RMSNorm(v_l; w)``, ``p_l = softmax_l(<k_l, q>)``, ``o = sum_l p_l v_l``."""
    assert return_weights
    assert {residual.dtype for residual in residuals} == {query.dtype}
    stacked = torch.stack(tuple(residuals))
    keys = functional.rms_norm(stacked, rms_weight.shape, rms_weight, rms_eps)
    weights = (keys * query).sum(-1).softmax(0)
    return (weights.unsqueeze(-1) * stacked).sum(0), weights.detach()


def liger_fused_linear_cross_entropy(rows: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    return functional.cross_entropy(functional.linear(rows, weight).float(), target)


WRITTEN = Kernels(
    read_streams=fused.reader(liger_mhc_pre),
    mix_and_write=fused.writer(liger_mhc_post_res),
    mix_sources=mixer(fused_attnres),
    loss=mean_loss(liger_fused_linear_cross_entropy),
)


@pytest.fixture(params=["as documented", *PACKAGES])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    if request.param == "as documented":
        return WRITTEN
    if DEVICE == "cpu" and not (INTERPRETED and request.param == "liger-kernel"):
        pytest.skip(f"no GPU for {request.param}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return PACKAGES[request.param](PLAIN)
    except ImportError as error:
        pytest.skip(f"{request.param}: {error}")


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def test_reading_streams(kernels: Kernels) -> None:
    if kernels.read_streams is None:
        pytest.skip("brought by another package")
    inputs = (noise(2, 5, 4, 24), noise(2, 5, 4, seed=1))
    assert_same(kernels.read_streams, read_streams_plain, inputs, 1e-6)
    static = (noise(2, 5, 4, 24), noise(4, seed=1))
    assert_same(kernels.read_streams, read_streams_plain, static, 1e-6)


@pytest.mark.parametrize("streams", [2, 4])
def test_mixing_and_writing_streams(kernels: Kernels, streams: int) -> None:
    """With a matrix that is not symmetric."""
    if kernels.mix_and_write is None:
        pytest.skip("brought by another package")
    inputs = (
        noise(2, 5, streams, 24),
        noise(2, 5, streams, streams, seed=1),
        noise(2, 5, 24, seed=2),
        noise(2, 5, streams, seed=3),
    )
    assert_same(
        kernels.mix_and_write,
        lambda h, mix, y, write: mix_and_write_plain(h, mix, y, write),
        inputs,
        1e-6,
    )


@pytest.mark.parametrize("count", [2, 9])
def test_mixing_sources(kernels: Kernels, count: int) -> None:
    """Also with a running sum; outputs, weights, and gradients of query and all sources."""
    if kernels.mix_sources is None:
        pytest.skip("brought by another package")
    kernel = kernels.mix_sources

    def ours(query: Tensor, *sources: Tensor) -> Tensor:
        return kernel(sources, query, 1e-6)[0]

    def plain(query: Tensor, *sources: Tensor) -> Tensor:
        bank = PlainBank(query[None], 1e-6)
        for source in sources:
            bank = bank.append(source)
        return bank.mix(0, None, None)[0]

    sources = [noise(2, 5, 32, seed=seed) for seed in range(count)]
    query = noise(32, seed=99)
    assert_same(ours, plain, (query, *sources), 1e-5)
    bank = PlainBank(query[None], 1e-6, (*sources,))
    for source in sources:
        bank = replace(bank.append(source), values=bank.values)
    weights = kernel(sources, query, 1e-6)[1]
    torch.testing.assert_close(weights, bank.mix(0, None, None)[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_loss(kernels: Kernels, factor: float) -> None:
    if kernels.loss is None:
        pytest.skip("brought by another package")
    targets = torch.randint(90, (2, 7), generator=torch.Generator().manual_seed(3)).to(DEVICE)
    finish = kernels.loss(targets, 90)

    def plain(x: Tensor, weight: Tensor) -> Tensor:
        logits = (factor * functional.linear(x, weight))[..., :90]
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    inputs = (noise(2, 7, 16), noise(97, 16, seed=1))
    assert_same(lambda x, weight: finish(x, weight, factor), plain, inputs, 1e-5)


class Counted:
    """Counts how often each of the documented functions is called."""

    def __init__(self) -> None:
        self.calls = dict.fromkeys(("read", "write", "mix"), 0)

    def of(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*inputs: Any, **options: Any) -> Any:
            self.calls[name] += 1
            return function(*inputs, **options)

        return run

    def kernels(self) -> Kernels:
        return Kernels(
            read_streams=fused.reader(self.of("read", liger_mhc_pre)),
            mix_and_write=fused.writer(self.of("write", liger_mhc_post_res)),
            mix_sources=mixer(self.of("mix", fused_attnres)),
        )


SHAPE = GQA.model_copy(update={"layers": 4})
SITES = SHAPE.sites
USED: dict[str, tuple[int, int, int]] = {
    "prenorm": (0, 0, 0),
    "hc": (SITES, SITES, 0),
    "hc(dynamic=false)": (SITES, SITES, 0),
    "hc(mix=false)": (SITES, 0, 0),
    "hc(streams=3)": (SITES, 0, 0),
    "mhc": (SITES, SITES, 0),
    "mhc_lite": (SITES, SITES, 0),
    "attnres": (0, 0, SITES),
    "block_attnres(blocks=3)": (0, 0, SITES),
    "block_attnres(blocks=3,definition=boundary)": (0, 0, 3),
    "block_attnres(blocks=3,definition=recency)": (0, 0, 0),
}
"""Calls of each kernel in a forward: where one does not suit, torch's own operations run."""


def gradients_of(model: Model, tokens: Tensor) -> dict[str, Tensor]:
    """All gradients, and the loss."""
    model.zero_grad()
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    loss.backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {"loss": loss.detach()} | {name: grad.clone() for name, grad in found.items()}


def moved_model(design: DesignConfig) -> Model:
    """In float32, away from its start."""
    model = Model.build(config_of(design, SHAPE), seed=0)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("design", USED)
def test_models_use_what_suits_and_compute_the_same(design: str, checkpointing: bool) -> None:
    model, counted = moved_model(VARIANTS[design]), Counted()
    tokens = tokens_of(SHAPE)
    with plain_kernels():
        expected = gradients_of(model, tokens)
    model.checkpointing = checkpointing
    model.use_kernels(counted.kernels())
    found = gradients_of(model, tokens)
    again = 2 if checkpointing and model.design.checkpoint_unit == "block" else 1
    assert tuple(counted.calls.values()) == tuple(again * calls for calls in USED[design])
    with plain_kernels():
        model(tokens)
    assert tuple(counted.calls.values()) == tuple(again * calls for calls in USED[design])
    assert found.keys() == expected.keys()
    # some gradients are differences of much larger numbers
    largest = max(gradient.abs().max().item() for gradient in expected.values())
    for name, gradient in expected.items():
        near = 2e-5 * gradient.abs().max().item() + 1e-6 * largest
        torch.testing.assert_close(found[name], gradient, rtol=0, atol=near, msg=name)


def test_other_dtypes_and_widths_run_on_torchs_own_operations() -> None:
    counted = Counted()
    narrow = GQA.model_copy(update={"width": 24})
    for model in (
        Model.build(config_of("mhc"), seed=0, dtype=torch.float64),
        Model.build(config_of("attnres"), seed=0, dtype=torch.float64),
        Model.build(config_of("attnres", narrow), seed=0),
    ):
        model.use_kernels(counted.kernels())
        model(tokens_of(GQA))
    assert tuple(counted.calls.values()) == (0, 0, 0)


def test_under_autocast_the_state_stays_in_float32() -> None:
    for design in ("mhc", "attnres"):
        model = moved_model(VARIANTS[design])
        with torch.autocast("cpu", torch.bfloat16):
            expected = model(tokens_of(SHAPE))
            model.use_kernels(WRITTEN)
            found = model(tokens_of(SHAPE))
        distance = (found - expected).square().mean().sqrt() / expected.square().mean().sqrt()
        assert distance < 1e-3, design


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, notes = load_kernels(torch.device("cpu"))
    assert cpu is PLAIN
    assert notes == ["kernels: torch's own operations, for there are none on cpu"]

    def missing(_: Kernels) -> Kernels:
        raise ImportError("No module named 'fla'")

    def there(kernels: Kernels) -> Kernels:
        return replace(kernels, read_streams=WRITTEN.read_streams)

    monkeypatch.setitem(PACKAGES, "liger-kernel", there)
    monkeypatch.setitem(PACKAGES, "flash-linear-attention", missing)
    monkeypatch.setattr(fused, "version", lambda package: "1.2")
    found, notes = load_kernels(torch.device("cuda"))
    assert found == Kernels(read_streams=WRITTEN.read_streams)
    assert notes == [
        "kernels: those of liger-kernel 1.2",
        "kernels: none of flash-linear-attention (No module named 'fla'). "
        "Install depthbench[kernels]",
    ]
