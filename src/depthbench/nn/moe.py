"""Mixture of experts: every token goes to a few of many SwiGLUs."""

from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn import functional

from depthbench.nn.branch import Backbone, Branch, Context, Depth, Load
from depthbench.nn.cache import Memory
from depthbench.nn.fast_swiglu import gate_fast, gate_plain
from depthbench.nn.kernels import eager, fast
from depthbench.nn.parameters import Projection, Start, matrix_of
from depthbench.nn.precision import at_least_float32, full_precision
from depthbench.nn.work import Work
from depthbench.shapes import Shape


class MoEBackbone(Backbone):
    """Routed experts in place of the feed-forward."""

    name: str = "moe"
    experts: int = Field(default=8, ge=1)
    """Of each block."""
    top_k: int = Field(default=2, ge=1)
    """Experts of each token."""
    expert_ffn: int | None = Field(default=None, ge=1)
    """Width of one expert; None = ``ffn / top_k``, rounded: then a token uses as many parameters
    as in the dense feed-forward, but for rounding and for the router's ``experts · d``."""
    renormalise: bool = True
    """Divide the chosen experts' probabilities by their sum."""
    balance_weight: float = Field(default=0.01, ge=0)
    """Of the load-balancing loss (arXiv 2101.03961)."""
    z_weight: float = Field(default=1e-3, ge=0)
    """Of the router's z loss (arXiv 2202.08906)."""

    @model_validator(mode="after")
    def _top_k_fits(self) -> "MoEBackbone":
        if self.top_k > self.experts:
            raise ValueError(
                f"top_k = {self.top_k} is more than experts = {self.experts}. Use fewer of them"
            )
        if self.top_k == 1 and self.renormalise and self.experts > 1:
            raise ValueError(
                "top_k = 1 with renormalise makes every weight 1, and no loss reaches the router. "
                "Set renormalise = false, or top_k = 2"
            )
        return self

    def expert_width(self, shape: Shape) -> int:
        """Width of one expert at ``shape``."""
        return self.expert_ffn or max(1, round(shape.ffn / self.top_k))


@final
class RoutedExperts(Branch):
    """``Σ_e w_e F_e(x)``, ``p = softmax(W_r x)``, ``w_e = p_e`` of the ``top_k`` largest, else 0.

    Top-k routing as in arXiv 2101.03961, without a capacity: no token is dropped, so a token's
    output does not depend on others. Probabilities and weights in float32 or better. ``F_e`` are
    SwiGLUs; with ``renormalise`` the weights of the chosen add up to 1.
    """

    def __init__(
        self, config: MoEBackbone, shape: Shape, std_gate_up: float, std_down: float
    ) -> None:
        super().__init__()
        self.config = config
        self.width = config.expert_width(shape)
        all_experts = config.experts * self.width
        self.router = Projection(shape.width, [(config.experts, config.init_std)])
        self.gate_up = Projection(shape.width, [(2 * all_experts, std_gate_up)])
        self.down = Projection(all_experts, [(shape.width, std_down)])

    def starts(self) -> dict[str, Start]:
        return {}

    def last(self) -> tuple[Projection, ...]:
        return (self.down,)

    def forward(
        self,
        x: Float[Tensor, "b t d"],
        context: Context,
        depth: Depth | None = None,
        memory: Memory | None = None,
    ) -> tuple[Float[Tensor, "b t d"], None]:
        with full_precision(x):
            logits = functional.linear(
                at_least_float32(x), at_least_float32(matrix_of(self.router))
            )
            probabilities = torch.softmax(logits, dim=-1)
        weights, chosen = probabilities.topk(self.config.top_k, dim=-1)
        if self.config.renormalise:
            weights = weights / weights.sum(-1, keepdim=True)
        if context.loads is not None:
            context.loads.append(load_of(logits, probabilities, chosen, context))
        experts = self.sorted_experts if eager(x) else self.all_experts
        y = experts(x.flatten(0, 1), weights.flatten(0, 1), chosen.flatten(0, 1))
        return y.view(x.shape), None

    def all_experts(
        self, x: Float[Tensor, "n d"], weights: Float[Tensor, "n k"], chosen: Int[Tensor, "n k"]
    ) -> Float[Tensor, "n d"]:
        """Every expert on every token: one wide SwiGLU, weighted before the last product."""
        experts = self.config.experts
        spread = weights.new_zeros(len(x), experts).scatter(1, chosen, weights)
        hidden = gate_plain(self.gate_up(x).unflatten(-1, (experts, -1)))
        return self.down((hidden * spread.unsqueeze(-1)).to(hidden.dtype).flatten(1))

    def sorted_experts(
        self, x: Float[Tensor, "n d"], weights: Float[Tensor, "n k"], chosen: Int[Tensor, "n k"]
    ) -> Float[Tensor, "n d"]:
        """Every expert on its own tokens alone, which are brought side by side."""
        experts, (count, top_k) = self.config.experts, chosen.shape
        order = chosen.flatten().argsort(stable=True)
        token = order // top_k
        sizes = torch.bincount(chosen.flatten(), minlength=experts).tolist()
        rows = x.index_select(0, token).split(sizes)
        scales = weights.flatten().index_select(0, order).unsqueeze(-1).split(sizes)
        gate_up = matrix_of(self.gate_up).unflatten(0, (experts, -1)).unbind(0)
        down = matrix_of(self.down).unflatten(1, (experts, -1)).unbind(1)
        gate = gate_fast if fast(x) else gate_plain
        parts = []
        for row, scale, into, out in zip(rows, scales, gate_up, down, strict=True):
            hidden = gate(functional.linear(row, into))
            parts.append(functional.linear((hidden * scale).to(hidden.dtype), out))
        outputs = torch.cat(parts)
        summed = at_least_float32(outputs.new_zeros(count, x.shape[1]))
        return summed.index_add(0, token, outputs.to(summed.dtype)).to(outputs.dtype)

    def active(self) -> int:
        """The router and ``top_k`` experts."""
        experts = self.gate_up.weight.numel() + self.down.weight.numel()
        used = experts * self.config.top_k // self.config.experts
        return self.router.weight.numel() + used

    def work(self, length: int) -> Work:
        """Products of the experts that are chosen, and the router's."""
        return Work(products=2 * length * self.active())


def load_of(
    logits: Float[Tensor, "b t experts"],
    probabilities: Float[Tensor, "b t experts"],
    chosen: Int[Tensor, "b t k"],
    context: Context,
) -> Load:
    """Means over the tokens that are text; only ``probability`` and ``z`` have a gradient."""
    experts, valid = logits.shape[-1], context.valid(logits.shape[1])
    counts = functional.one_hot(chosen, experts).sum(-2).to(logits.dtype) / chosen.shape[-1]
    squares = torch.logsumexp(logits, dim=-1).square()
    if valid is None:
        return Load(counts.mean((0, 1)), probabilities.mean((0, 1)), squares.mean())
    weight = valid.to(logits.dtype) / valid.sum()
    share, probability = (torch.einsum("bt,bte->e", weight, x) for x in (counts, probabilities))
    return Load(share, probability, (weight * squares).sum())


def router_penalty(config: MoEBackbone, loads: Sequence[Load]) -> Float[Tensor, ""]:
    """``Σ_sites balance_weight · experts · Σ_e share_e · probability_e + z_weight · z``.

    The balance loss of arXiv 2101.03961, 1 for even loads, and the z loss of arXiv 2202.08906,
    ``mean log² Σ_e exp(logit_e)``. Added over sites, so that a router feels the same at any depth.
    """
    total = torch.zeros((), device=loads[0].z.device if loads else None)
    for load in loads:
        balance = config.experts * (load.share * load.probability).sum()
        total = total + config.balance_weight * balance + config.z_weight * load.z
    return total
