"""Attention beside a state-space branch, token by token; what is refused."""

from typing import Any

import pytest
import torch
from torch import Tensor

from depthbench.errors import DepthbenchError
from depthbench.nn.branch import Context, Depth, Entry
from depthbench.nn.cache import Room
from depthbench.nn.hybrid import AttentionBesideStates, HybridBackbone
from depthbench.nn.model import Model
from depthbench.nn.rope import rotary_table
from depthbench.shapes import Shape
from tests.oracles import (
    GQA,
    Oracle,
    assert_equal,
    assert_equation,
    config_of,
    random_model,
    rms,
    tokens_of,
)

OPTIONS: list[dict[str, Any]] = [
    {"chunk": 4},
    {"state": 3, "expand": 2, "head_width": 16, "kernel": 2},
    {"kernel": 1, "head_width": 1},
]


class HybridOracle(Oracle):
    """Adds the recurrence to the attention, head by head."""

    def __init__(self, parameters: dict[str, Tensor], shape: Shape, config: HybridBackbone) -> None:
        super().__init__(parameters, shape)
        self.config = config

    def __getitem__(self, name: str) -> Tensor:
        inner = name.replace(".attention.qkv", ".attention.attention.qkv")
        return super().__getitem__(inner.replace(".attention.o.", ".attention.attention.o."))

    def attention(self, site: int, x: Tensor, *more: Any, **other: Any) -> Tensor:
        return super().attention(site, x, *more, **other) + self.recurrence(site, x)

    def recurrence(self, site: int, x: Tensor) -> Tensor:
        """``y`` of every token, gated, normed and projected."""
        config, width = self.config, self.shape.width

        def own(name: str) -> Tensor:
            return self[f"blocks.{site // 2}.attention.states.{name}"]

        inner, n = config.expand * width, config.state
        head_width = config.head_width or self.shape.head_dim
        heads = inner // head_width
        projected = x @ own("into.weight").T
        gate, mixed, step = projected.split([inner, inner + 2 * n, heads], dim=-1)
        states = [torch.zeros(head_width, n, dtype=torch.float64) for _ in range(heads)]
        rows = []
        for t in range(len(x)):
            seen = torch.zeros(inner + 2 * n, dtype=torch.float64)
            for back in range(config.kernel):
                if t - back >= 0:
                    seen = seen + own("kernel")[:, config.kernel - 1 - back] * mixed[t - back]
            seen = seen / (1 + torch.exp(-seen))
            write, read = seen[inner : inner + n], seen[inner + n :]
            outputs = []
            for head in range(heads):
                value = seen[head * head_width : (head + 1) * head_width]
                delta = torch.log1p(torch.exp(step[t, head] + own("step_bias")[head]))
                kept = torch.exp(-torch.exp(own("log_decay")[head]) * delta)
                states[head] = kept * states[head] + delta * torch.outer(value, write)
                outputs.append(states[head] @ read + own("skip")[head] * value)
            opened = gate[t] / (1 + torch.exp(-gate[t]))
            rows.append(rms(torch.cat(outputs) * opened, own("norm.gain")))
        return torch.stack(rows) @ own("out.weight").T


def prenorm(oracle: Oracle, x: Tensor) -> Tensor:
    for site in range(oracle.shape.sites):
        x = x + oracle.branch(site, oracle.norm(site, x))
    return x


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_equation(options: dict[str, Any]) -> None:
    config = config_of("prenorm", name="hybrid", **options)
    settings = config.backbone
    assert isinstance(settings, HybridBackbone)
    assert_equation(
        config, prenorm, naive=lambda leaves, shape: HybridOracle(leaves, shape, settings)
    )


def test_the_chunk_changes_nothing() -> None:
    tokens = tokens_of(GQA, length=19)
    logits = [
        random_model(config_of("prenorm", name="hybrid", chunk=chunk))(tokens)
        for chunk in (1, 4, 64)
    ]
    for other in logits[1:]:
        assert_equal(other, logits[0], "logits")


def test_depth_goes_to_the_attention_alone_and_its_entry_comes_back() -> None:
    branch = random_model(config_of("prenorm", name="hybrid")).blocks[0].attention
    assert isinstance(branch, AttentionBesideStates)
    context = context_of(6)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 6, 32, generator=generator, dtype=torch.float64)
    key, value = torch.randn(2, 2, 6, 2, 8, generator=generator, dtype=torch.float64)
    depth = Depth((Entry(key, value),))
    both, entry = branch(x, context, depth)
    attended, own = branch.attention(x, context, depth)
    assert_equal(both, attended + branch.states(x, context)[0], "outputs")
    assert entry is not None
    assert own is not None
    assert_equal(entry.value, own.value, "entry")
    memory = branch.new_memory(Room(2, 6, torch.device("cpu"), torch.float64))
    assert len(memory.tensors()) == 4


def context_of(length: int) -> Context:
    return Context(*rotary_table(length, 8, 10000.0, torch.device("cpu"), torch.float64))


def test_work_is_the_sum_of_both() -> None:
    branch = random_model(config_of("prenorm", name="hybrid")).blocks[0].attention
    assert isinstance(branch, AttentionBesideStates)
    assert branch.work(70) == branch.attention.work(70) + branch.states.work(70)
    assert branch.work(70).attention == branch.attention.work(70).attention


def test_moda_is_refused_and_says_why() -> None:
    with pytest.raises(DepthbenchError, match="design 'moda' on backbone 'hybrid': its softmax"):
        Model.on_meta(config_of("moda", name="hybrid"))
    Model.on_meta(config_of("moda", name="moe"))


def test_a_head_width_that_does_not_divide_is_refused() -> None:
    with pytest.raises(DepthbenchError) as caught:
        Model.on_meta(config_of("prenorm", name="hybrid", head_width=24, expand=2))
    assert str(caught.value) == (
        "backbone.head_width = 24 does not divide the state-space branch's 64 features "
        "(expand 2 · width 32). Use a divisor, such as 8"
    )


@pytest.mark.parametrize(
    ("design", "deep", "into", "out"),
    [
        ("prenorm", False, 1.0, 1.0),
        ("prenorm", True, 1.0, 6**-0.5),
        ("deepnorm", False, 24**-0.25, 24**-0.25),
    ],
)
def test_roles_of_the_start(design: str, deep: bool, into: float, out: float) -> None:
    """The in-projection starts as values do, the out-projection as the attention's output."""
    shape = GQA.model_copy(update={"width": 128})
    config = config_of(design, shape, name="hybrid", depth_scaled_init=deep)
    model = Model.build(config, seed=0)
    truncated = 0.02 * 0.9866
    for name, factor in (("into", into), ("out", out)):
        weight = model.get_parameter(f"blocks.0.attention.states.{name}.weight")
        assert weight.std().item() == pytest.approx(truncated * factor, rel=0.02)
