"""Routed experts, one token and one expert at a time; loads, penalties and counts by hand."""

import math
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from depthbench.nn.backbones import backbone_kind
from depthbench.nn.block import Trace
from depthbench.nn.branch import Context, Load
from depthbench.nn.count import count_parameters
from depthbench.nn.kernels import plain_kernels
from depthbench.nn.model import Model, ModelConfig
from depthbench.nn.moe import MoEBackbone, RoutedExperts
from depthbench.shapes import Shape
from tests.oracles import (
    CONTEXT,
    GQA,
    Oracle,
    assert_equal,
    assert_equation,
    assert_gradients,
    config_of,
    random_model,
    tokens_of,
)

OPTIONS: list[dict[str, Any]] = [
    {},
    {"experts": 5, "top_k": 3, "expert_ffn": 10},
    {"experts": 4, "top_k": 1, "renormalise": False},
    {"top_k": 2, "renormalise": False},
    {"experts": 2, "top_k": 2},
    {"experts": 1, "top_k": 1},
]
each = pytest.mark.parametrize("options", OPTIONS, ids=str)


class RoutedOracle(Oracle):
    """Every token goes to the experts with the largest logits, found by sorting them."""

    def __init__(self, parameters: dict[str, Tensor], shape: Shape, config: MoEBackbone) -> None:
        super().__init__(parameters, shape)
        self.config = config
        self.routed: dict[int, list[tuple[Tensor, list[int]]]] = {}

    def swiglu(self, site: int, x: Tensor) -> Tensor:
        block, config = f"blocks.{site // 2}.feedforward", self.config
        width = config.expert_ffn or self.shape.ffn // config.top_k
        router, gate_up, down = (
            self[f"{block}.{name}.weight"] for name in ("router", "gate_up", "down")
        )
        rows = []
        for token in x:
            logits = router @ token
            order = sorted(range(config.experts), key=lambda e: -logits[e].item())
            chosen = order[: config.top_k]
            self.routed.setdefault(site, []).append((logits, chosen))
            among = chosen if config.renormalise else range(config.experts)
            total = sum(torch.exp(logits[e]) for e in among)
            out = torch.zeros_like(token)
            for e in chosen:
                first = 2 * width * e
                gate = gate_up[first : first + width] @ token
                up = gate_up[first + width : first + 2 * width] @ token
                hidden = gate / (1 + torch.exp(-gate)) * up
                own = down[:, width * e : width * (e + 1)]
                out = out + torch.exp(logits[e]) / total * (own @ hidden)
            rows.append(out)
        return torch.stack(rows)

    def penalty(self) -> Tensor:
        """Of all tokens so far, written out."""
        config, total = self.config, torch.zeros((), dtype=torch.float64)
        for tokens in self.routed.values():
            n = len(tokens)
            for e in range(config.experts):
                share = sum(e in chosen for _, chosen in tokens) / (n * config.top_k)
                mean = sum(torch.exp(z[e]) / torch.exp(z).sum() for z, _ in tokens) / n
                total = total + config.balance_weight * config.experts * share * mean
            z = sum(torch.log(torch.exp(logits).sum()) ** 2 for logits, _ in tokens) / n
            total = total + config.z_weight * z
        return total


def prenorm(oracle: Oracle, x: Tensor) -> Tensor:
    for site in range(oracle.shape.sites):
        x = x + oracle.branch(site, oracle.norm(site, x))
    return x


def moe(**options: Any) -> ModelConfig:
    return config_of("prenorm", GQA, name="moe", **options)


def settings_of(config: ModelConfig) -> MoEBackbone:
    assert isinstance(config.backbone, MoEBackbone)
    return config.backbone


def branch_of(**options: Any) -> RoutedExperts:
    branch = random_model(moe(**options)).blocks[0].feedforward
    assert isinstance(branch, RoutedExperts)
    return branch


def noise(*axes: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(axes, generator=generator, dtype=torch.float64)


@each
def test_equation(options: dict[str, Any]) -> None:
    config = moe(**options)
    assert_equation(
        config,
        prenorm,
        # with one expert the weight is 1 whatever the router says
        without_effect=lambda name: "router" in name and settings_of(config).experts == 1,
        naive=lambda leaves, shape: RoutedOracle(leaves, shape, settings_of(config)),
    )


@pytest.mark.parametrize("tokens", [1, 40])
@each
def test_sorted_is_every_expert_on_every_token(options: dict[str, Any], tokens: int) -> None:
    """With experts that get no token too: one token leaves most of them idle."""
    branch, results = branch_of(**options), []
    for kernels in (nullcontext, plain_kernels):
        x = noise(1, tokens, 32).requires_grad_()
        branch.zero_grad()
        with kernels():
            y, _ = branch(x, CONTEXT)
            (y * noise(1, tokens, 32, seed=1)).sum().backward()
        results.append([y, x.grad, *(p.grad for p in branch.parameters())])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("design", ["prenorm", "hc", "attnres"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradient_of_loss_and_penalty(design: str, checkpointing: bool) -> None:
    """Of pre-norm against the equation; of others, with recomputation against without."""
    config = config_of(design, GQA, name="moe", balance_weight=0.7, z_weight=0.3)
    model, tokens = random_model(config), tokens_of(GQA)
    expected_penalty, leaves = expected_of(config, model, tokens)
    model.zero_grad()
    model.checkpointing = checkpointing
    loads: list[Load] = []
    logits = model(tokens, loads=loads)
    penalty = backbone_kind(config.backbone).penalty(loads)
    (logits.square().sum() + penalty).backward()
    assert len(loads) == GQA.layers
    assert_equal(penalty, expected_penalty, "penalty")
    assert_gradients(model, leaves, lambda name: False)


def expected_of(
    config: ModelConfig, model: Model, tokens: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """The penalty, and leaves with gradients of squared logits and penalty."""
    if config.design.name != "prenorm":
        loads: list[Load] = []
        with plain_kernels():
            logits = model(tokens, loads=loads)
            penalty = backbone_kind(config.backbone).penalty(loads)
            (logits.square().sum() + penalty).backward()
        leaves = {}
        for name, parameter in model.named_parameters():
            leaves[name] = parameter.detach().clone()
            leaves[name].grad = None if parameter.grad is None else parameter.grad.clone()
        return penalty, leaves
    leaves = {n: p.detach().clone().requires_grad_() for n, p in model.named_parameters()}
    oracle = RoutedOracle(leaves, GQA, settings_of(config))
    logits = torch.stack(
        [oracle.logits(prenorm(oracle, oracle["embed.weight"][s])) for s in tokens]
    )
    penalty = oracle.penalty()
    (logits.square().sum() + penalty).backward()
    return penalty, leaves


def test_even_probabilities_give_the_least_penalty() -> None:
    config = moe(experts=8)
    model = random_model(config)
    with torch.no_grad():
        for block in model.blocks:
            block.get_parameter("feedforward.router.weight").zero_()
    loads: list[Load] = []
    model(tokens_of(GQA), loads=loads)
    penalty = backbone_kind(config.backbone).penalty(loads).item()
    assert penalty == pytest.approx(3 * (0.01 + 1e-3 * math.log(8) ** 2), rel=1e-12)
    for load in loads:
        assert load.share.sum().item() == pytest.approx(1.0, rel=1e-12)
        assert load.probability.tolist() == pytest.approx([1 / 8] * 8, rel=1e-12)
    assert backbone_kind(config.backbone).penalty([]).item() == 0
    assert backbone_kind(config_of("prenorm").backbone).penalty([]).item() == 0


@pytest.mark.parametrize("edge", [1, 4])
def test_padding_is_left_out_of_loads(edge: int) -> None:
    model, tokens = random_model(moe()), tokens_of(GQA, batch=1, length=9)
    padded, alone = Trace(), Trace()
    model(tokens, padding=torch.tensor([edge]), trace=padded)
    model(tokens[:, edge:], trace=alone)
    assert len(padded.loads) == len(alone.loads) == 3
    for one, other in zip(padded.loads, alone.loads, strict=True):
        for name in ("share", "probability", "z"):
            assert_equal(getattr(one, name), getattr(other, name), name)


def test_the_router_is_in_float32_under_autocast() -> None:
    branch = branch_of().float()
    x = noise(1, 400, 32).float()
    loads: list[list[Load]] = [[], []]
    for rounded in (False, True):
        context = Context(CONTEXT.cos, CONTEXT.sin, loads=loads[rounded])
        with torch.autocast("cpu", torch.bfloat16, enabled=rounded):
            y, _ = branch(x, context)
        assert y.isfinite().all()
    (plain,), (other,) = loads
    assert other.z.dtype == other.probability.dtype == torch.float32
    assert torch.equal(plain.share, other.share)
    assert torch.equal(plain.z, other.z)


@pytest.mark.parametrize("kernels", [nullcontext, plain_kernels])
def test_outputs_under_autocast_are_close(kernels: Any) -> None:
    branch = branch_of().float()
    x = noise(2, 50, 32).float()
    with kernels():
        exact, _ = branch(x, CONTEXT)
        with torch.autocast("cpu", torch.bfloat16):
            rounded, _ = branch(x, CONTEXT)
    assert rounded.dtype == torch.bfloat16
    assert 1e-4 < ((rounded - exact).norm() / exact.norm()).item() < 0.02


def test_a_token_uses_as_much_as_in_the_dense_model_and_the_router() -> None:
    dense, routed = count_parameters(config_of("prenorm")), count_parameters(moe())
    assert dense.active == dense.total
    assert routed.active == dense.total + 3 * 8 * 32
    assert routed.total == dense.total + 3 * (8 * 32 + 3 * 3 * 32 * 24)
    assert routed.own == 0
    wider = count_parameters(moe(experts=4, top_k=3, expert_ffn=10))
    assert wider.total - wider.active == 3 * 3 * 32 * 10
    assert (
        count_parameters(config_of("hc", name="moe")).own == count_parameters(config_of("hc")).own
    )


@pytest.mark.parametrize(
    ("ffn", "top_k", "width"), [(24, 2, 12), (25, 3, 8), (26, 3, 9), (1, 4, 1)]
)
def test_width_of_an_expert(ffn: int, top_k: int, width: int) -> None:
    shape = GQA.model_copy(update={"ffn": ffn})
    assert MoEBackbone(top_k=top_k).expert_width(shape) == width


@each
def test_work_is_that_of_the_chosen_experts(options: dict[str, Any]) -> None:
    branch = branch_of(**options)
    with FlopCounterMode(display=False) as counter:
        branch(noise(1, 20, 32), CONTEXT)
    assert counter.get_total_flops() == branch.work(20).products
    assert branch.work(20).total == 2 * 20 * branch.active()


def test_the_router_starts_at_the_backbones_scale_whatever_the_design_says() -> None:
    for design in ("prenorm", "deepnorm"):
        model = Model.build(config_of(design, GQA, name="moe", experts=64), seed=0)
        router = model.get_parameter("blocks.1.feedforward.router.weight")
        assert router.std().item() == pytest.approx(0.02, rel=0.05)
