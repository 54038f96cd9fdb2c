"""What to watch while a model trains, by depth."""

import itertools

import torch
from torch import Tensor, nn

from depthbench.config import Frozen
from depthbench.nn.block import Trace
from depthbench.nn.model import Model
from depthbench.train.tensors import norm_of, whole


class Health(Frozen):
    """Signals by block, bottom first. None where a value is not finite."""

    gradient_norm: list[float | None]
    """As the optimizer saw them: after clipping."""
    gradient_bottom_over_top: float | None
    update_over_weight: list[float | None]
    """``learning rate · ‖m̂ / (sqrt(v̂) + eps)‖ / ‖w‖`` of the last Adam step, without decay."""
    second_moment: list[float | None]
    """Mean of Adam's ``v``: blocks that get almost no gradient stand out."""
    state_rms: list[float | None]
    """Root mean square of the depth states ``z_0 … z_L``."""
    state_variance: list[float | None]
    neighbour_cosine: list[float | None]
    """Mean cosine of ``z_i`` and ``z_{i+1}`` over tokens."""


class RoutedHealth(Health):
    """With what the routers did, bottom first."""

    expert_share: list[list[float | None]]
    """Of a router's choices that went to each of its experts."""
    busiest_share: list[float | None]
    """Of its choices that went to the busiest expert; ``1 / experts`` where loads are even."""


@torch.no_grad()
def measure(model: Model, optimizer: torch.optim.AdamW, tokens: Tensor) -> Health:
    """Health after a backward pass and a step, with depth states of ``tokens``."""
    blocks = [list(block.parameters()) for block in model.blocks]
    gradients = [_finite(norm_of(p.grad for p in block if p.grad is not None)) for block in blocks]
    bottom, top = gradients[0], gradients[-1]
    trace = Trace()
    model(tokens, trace=trace)
    states = [state.float() for state in trace.depth_states]
    pairs = itertools.pairwise(states)
    health = Health(
        gradient_norm=gradients,
        gradient_bottom_over_top=bottom / top if bottom is not None and top else None,
        update_over_weight=[_finite(_update_ratio(block, optimizer)) for block in blocks],
        second_moment=[_finite(_second_moment(block, optimizer)) for block in blocks],
        state_rms=[_finite(state.square().mean().sqrt()) for state in states],
        state_variance=[_finite(state.var()) for state in states],
        neighbour_cosine=[
            _finite(nn.functional.cosine_similarity(a, b, dim=-1).mean()) for a, b in pairs
        ],
    )
    if not trace.loads:
        return health
    return RoutedHealth(
        **health.resolved(),
        expert_share=[[_finite(share) for share in load.share] for load in trace.loads],
        busiest_share=[_finite(load.share.max()) for load in trace.loads],
    )


def _update_ratio(block: list[nn.Parameter], optimizer: torch.optim.AdamW) -> Tensor:
    group_of = {id(one): group for group in optimizer.param_groups for one in group["params"]}
    updates = []
    for parameter in block:
        state, group = optimizer.state[parameter], group_of[id(parameter)]
        beta1, beta2 = group["betas"]
        first = state["exp_avg"] / (1 - beta1 ** state["step"])
        second = state["exp_avg_sq"] / (1 - beta2 ** state["step"])
        updates.append(group["lr"] * first / (second.sqrt() + group["eps"]))
    return norm_of(updates) / norm_of(block)


def _second_moment(block: list[nn.Parameter], optimizer: torch.optim.AdamW) -> Tensor:
    moments = [optimizer.state[parameter]["exp_avg_sq"] for parameter in block]
    return torch.stack([m.sum() for m in moments]).sum() / sum(m.numel() for m in moments)


def _finite(value: Tensor) -> float | None:
    value = whole(value)
    return value.item() if value.isfinite() else None
