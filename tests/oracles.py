"""The backbone written out naively in float64, and the comparison of a model with an equation.

Nothing here calls the package's arithmetic: parameters are read by name, one sequence at a time,
with loops over tokens, heads and sites. An equation is a function of an `Oracle` and the
embedding of one sequence, and returns the readout (before the final norm).
"""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from depthbench.check.subject import random_model as random_model
from depthbench.designs.base import DesignConfig
from depthbench.nn.branch import Context
from depthbench.nn.kernels import plain_kernels
from depthbench.nn.model import Model, ModelConfig
from depthbench.shapes import Shape

EPS = 1e-6
GQA = Shape(layers=3, width=32, heads=4, kv_heads=2, ffn=24, vocab=99)
"""Grouped-query attention, with a vocabulary and a feed-forward of no round size."""
CONTEXT = Context(torch.empty(0, 4), torch.empty(0, 4))
"""For designs that look at no tokens."""


def rms(x: Tensor, gain: Tensor | None = None, eps: float = EPS) -> Tensor:
    """RMS norm of one vector, or of each row."""
    scaled = x / torch.sqrt((x * x).sum(-1, keepdim=True) / x.shape[-1] + eps)
    return scaled if gain is None else scaled * gain


def turn(vector: Tensor, position: int, base: float = 10000.0) -> Tensor:
    """RoPE of one head's vector: pairs ``(x_i, x_{i + n/2})`` as complex numbers."""
    half = vector.shape[-1] // 2
    angles = [position * base ** (-2 * i / vector.shape[-1]) for i in range(half)]
    phase = torch.tensor([complex(math.cos(a), math.sin(a)) for a in angles], dtype=torch.cdouble)
    turned = torch.complex(vector[:half], vector[half:]) * phase
    return torch.cat([turned.real, turned.imag])


class Oracle:
    """Naive branches of a model, from its named parameters, for one sequence of tokens."""

    def __init__(self, parameters: dict[str, Tensor], shape: Shape) -> None:
        self.parameters = parameters
        self.shape = shape

    def __getitem__(self, name: str) -> Tensor:
        return self.parameters[name]

    def own(self, site: int, name: str) -> Tensor:
        """The parameter ``name`` of a site's connection."""
        kind = "feedforward" if site % 2 else "attention"
        return self.parameters[f"blocks.{site // 2}.{kind}_connection.{name}"]

    def norm(self, site: int, x: Tensor, name: str = "norm") -> Tensor:
        """The site's RMSNorm called ``name``."""
        return rms(x, self.own(site, f"{name}.gain"))

    def branch(self, site: int, x: Tensor) -> Tensor:
        """``F`` of a site, without depth entries."""
        return self.swiglu(site, x) if site % 2 else self.attention(site, x)

    def swiglu(self, site: int, x: Tensor) -> Tensor:
        """``W_down (silu(W_gate x) ⊙ W_up x)``."""
        block = f"blocks.{site // 2}.feedforward"
        gate_up, down = self[f"{block}.gate_up.weight"], self[f"{block}.down.weight"]
        rows = []
        for token in x:
            gate = gate_up[: self.shape.ffn] @ token
            up = gate_up[self.shape.ffn :] @ token
            rows.append(down @ (gate / (1 + torch.exp(-gate)) * up))
        return torch.stack(rows)

    def qkv(self, site: int, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries ``(t, heads, n)``, keys and values ``(t, kv_heads, n)``, none of them turned."""
        weight = self[f"blocks.{site // 2}.attention.qkv.weight"]
        d, n = self.shape.width, self.shape.head_dim
        keys = self.shape.kv_heads * n
        query, key, value = weight[:d], weight[d : d + keys], weight[d + keys :]
        return tuple((x @ w.T).reshape(len(x), -1, n) for w in (query, key, value))  # type: ignore  # three

    def attention(
        self,
        site: int,
        x: Tensor,
        entries: Sequence[tuple[Tensor, Tensor]] = (),
        turn_entries: bool = False,
    ) -> Tensor:
        """Causal attention, token by token and head by head; ``entries`` as MoDA's depth cache.

        ``turn_entries`` turns the depth keys to the token's own position before they are met.
        """
        query, key, value = self.qkv(site, x)
        group = self.shape.heads // self.shape.kv_heads
        rows = []
        for t in range(len(x)):
            heads = []
            for head in range(self.shape.heads):
                kv = head // group
                q = turn(query[t, head], t)
                met = [turn(key[s, kv], s) for s in range(t + 1)]
                met += [turn(k[t, kv], t) if turn_entries else k[t, kv] for k, _ in entries]
                seen = [value[s, kv] for s in range(t + 1)] + [v[t, kv] for _, v in entries]
                scores = torch.stack([q @ k for k in met]) / math.sqrt(self.shape.head_dim)
                weights = torch.exp(scores - scores.max().detach())
                weights = weights / weights.sum()
                heads.append(sum(w * v for w, v in zip(weights, seen, strict=True)))
            rows.append(torch.cat(heads))
        return torch.stack(rows) @ self[f"blocks.{site // 2}.attention.o.weight"].T

    def logits(self, readout: Tensor) -> Tensor:
        """Final norm and head."""
        return rms(readout, self["final_norm.gain"]) @ self["head.weight"].T


Equation = Callable[[Oracle, Tensor], Tensor]


def config_of(
    design: str | dict[str, Any] | DesignConfig, shape: Shape = GQA, **backbone: Any
) -> ModelConfig:
    """The model config of a design at a test shape."""
    return ModelConfig.parse({"shape": shape, "design": design, "backbone": backbone})


def tokens_of(shape: Shape, batch: int = 2, length: int = 6, seed: int = 1) -> Tensor:
    """Random tokens."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(shape.vocab, (batch, length), generator=generator)


def assert_equation(
    config: ModelConfig,
    equation: Equation,
    program: Sequence[int] | None = None,
    without_effect: Callable[[str], bool] = lambda name: False,
    naive: Callable[[dict[str, Tensor], Shape], Oracle] = Oracle,
) -> None:
    """The model's logits, and the gradient of every parameter, are the equation's.

    Twice: with the operations that have their own backward, and with torch's alone.
    ``without_effect`` names parameters that the equation itself does not depend on, so that both
    gradients are 0 up to rounding. ``naive`` has the branches of another backbone.
    """
    model = random_model(config)
    tokens = tokens_of(config.shape)
    leaves = {
        name: parameter.detach().clone().requires_grad_()
        for name, parameter in model.named_parameters()
    }
    oracle = naive(leaves, config.shape)
    expected = torch.stack(
        [oracle.logits(equation(oracle, oracle["embed.weight"][sequence])) for sequence in tokens]
    )
    cotangent = torch.randn(
        expected.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64
    )
    (expected * cotangent).sum().backward()
    for kernels in (nullcontext, plain_kernels):
        model.zero_grad()
        with kernels():
            logits = model(tokens, program=program)
            (logits * cotangent).sum().backward()
        assert_equal(logits, expected, "logits")
        assert_gradients(model, leaves, without_effect)


def assert_gradients(
    model: Model, leaves: dict[str, Tensor], without_effect: Callable[[str], bool]
) -> None:
    """Every parameter's gradient is that of the leaf of its name."""
    for name, parameter in model.named_parameters():
        gradient = leaves[name].grad
        if gradient is None:
            assert parameter.grad is None or not parameter.grad.any(), name
        elif without_effect(name):
            assert gradient.abs().max() < 1e-12, name
            assert parameter.grad is not None, name
            assert parameter.grad.abs().max() < 1e-12, name
        else:
            assert_equal(parameter.grad, gradient, name)


def assert_equal(actual: Tensor | None, expected: Tensor | None, what: str) -> None:
    """Equal to ten digits of the largest entry, and to the rounding of sums of order 1."""
    assert actual is not None
    assert expected is not None
    scale = expected.abs().max().item()
    assert scale > 0, f"{what}: nothing to compare"
    torch.testing.assert_close(
        actual, expected, rtol=1e-9, atol=1e-10 * scale + 1e-13, msg=lambda text: f"{what}: {text}"
    )
