"""What to see of a model by depth while it trains."""

import itertools
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from depthbench.config import Frozen
from depthbench.nn.block import Trace
from depthbench.nn.model import Model
from depthbench.train.health.sums import blocks_of, magnitudes, squares, update_squares

Numbers = list[float | None]
"""None where a value is not finite."""
DIGITS = 7
"""That are kept of every number: more than its sampling error is worth."""


class Health(Frozen):
    """Signals by depth, bottom first. A group that does not apply is None.

    By block: gradient, update, second moment. By site: outputs, mixing. By depth state
    ``z_0 … z_L``: state, drift. By router: experts.
    """

    gradient_norm: Numbers
    """As the optimizer saw them: after clipping."""
    gradient_bottom_over_top: float | None = None
    update_over_weight: Numbers
    """``learning rate · ‖m̂ / (sqrt(v̂) + eps)‖ / ‖w‖`` of the last Adam step, without decay."""
    second_moment: Numbers
    """Mean of Adam's ``v``: blocks that get almost no gradient stand out."""
    output_norm: Numbers
    """Euclidean norm of a branch's output, mean over tokens."""
    output_variance: Numbers
    """Variance of all entries of a branch's output."""
    state_rms: Numbers
    """Root mean square of the depth states."""
    state_variance: Numbers
    neighbour_cosine: Numbers
    """Mean cosine of ``z_i`` and ``z_{i+1}`` over tokens."""
    shallow_deep_cosine: float | None = None
    """Mean cosine over tokens of states in the first and in the last quarter of blocks; None for
    a single block."""
    mixing_row_error: Numbers | None = None
    """Largest distance of a row sum of a site's mixing matrices from 1, over tokens; None where
    they need not be doubly stochastic."""
    mixing_column_error: Numbers | None = None
    low_precision_drift: Numbers | None = None
    """``‖z_i - z_i'‖ / ‖z_i'‖`` with ``z'`` computed in float32; None where training is."""
    expert_share: list[Numbers] | None = None
    """Of a router's choices that went to each of its experts; None without routers."""
    busiest_share: Numbers | None = None
    """Of its choices that went to the busiest expert; ``1 / experts`` where loads are even."""

    def record(self) -> dict[str, Any]:
        """What applies, as JSON data of `DIGITS` digits."""
        return _rounded(self.model_dump(mode="json", exclude_none=True))


@dataclass
class Seen:
    """One forward: what `Trace` holds, and the outputs of all branches."""

    trace: Trace = field(default_factory=Trace)
    outputs: list[Tensor] = field(default_factory=list)

    @property
    def states(self) -> list[Tensor]:
        """Depth states in float32."""
        return [state.float() for state in self.trace.depth_states]


@torch.no_grad()
def measure(
    model: Model,
    optimizer: torch.optim.AdamW,
    tokens: Int[Tensor, "b t"],
    autocast: AbstractContextManager[Any] | None = None,
) -> Health:
    """Health after a backward pass and a step, with states and outputs on ``tokens``.

    ``autocast`` is the precision that the model trains in, where that is not float32: the first
    sequence then runs in float32 too.
    """
    parameters = _of_parameters(model, optimizer)
    if autocast is None:
        seen = look(model, tokens)
    else:
        with autocast:
            seen = look(model, tokens)
    drift = None if autocast is None else _drift(seen.states, look(model, tokens[:1]).states)
    return Health(
        **parameters,
        **_of_outputs(seen.outputs),
        **_of_states(seen.states),
        **_of_mixes(model, seen.trace),
        **_of_routers(seen.trace),
        low_precision_drift=drift,
    )


def look(model: Model, tokens: Int[Tensor, "b t"]) -> Seen:
    """Run ``tokens`` and keep what passes."""
    seen = Seen()

    def keep(_: int, __: Tensor, y: Tensor) -> Tensor:
        seen.outputs.append(y)
        return y

    model(tokens, trace=seen.trace, tap=keep)
    return seen


def _of_parameters(model: Model, optimizer: torch.optim.AdamW) -> dict[str, Any]:
    blocks = blocks_of(model)
    moments = [[optimizer.state.get(p, {}).get("exp_avg_sq") for p in own] for own in blocks]
    sums = (
        squares([[p.grad for p in block] for block in blocks]),
        squares(blocks),
        update_squares(blocks, optimizer),
        magnitudes(moments),
    )
    # sums of nothing lie on the CPU
    gradient, weight, update, second = (one.to(blocks[0][0].device) for one in sums)
    sizes = torch.tensor([sum(p.numel() for p in own) for own in blocks], device=second.device)
    found = numbers(torch.stack([(update / weight).sqrt(), second / sizes]))
    # a block that no step has moved yet has no size of a step, rather than 0
    moved = [any(moment is not None for moment in own) for own in moments]
    updates, seconds = (
        [v if m else None for v, m in zip(row, moved, strict=True)] for row in found
    )
    gradients = numbers(gradient.sqrt())
    bottom, top = gradients[0], gradients[-1]
    return {
        "gradient_norm": gradients,
        "gradient_bottom_over_top": bottom / top if bottom is not None and top else None,
        "update_over_weight": updates,
        "second_moment": seconds,
    }


def _of_outputs(outputs: list[Float[Tensor, "b t d"]]) -> dict[str, Any]:
    norms = torch.stack([y.float().norm(dim=-1).mean() for y in outputs])
    variances = torch.stack([y.float().var() for y in outputs])
    norm, variance = numbers(torch.stack([norms, variances]))
    return {"output_norm": norm, "output_variance": variance}


def _of_states(states: list[Float[Tensor, "b t width"]]) -> dict[str, Any]:
    rms = torch.stack([state.square().mean().sqrt() for state in states])
    variances = torch.stack([state.var() for state in states])
    pairs = itertools.pairwise(states)
    cosines = torch.stack([nn.functional.cosine_similarity(a, b, dim=-1).mean() for a, b in pairs])
    return {
        "state_rms": numbers(rms),
        "state_variance": numbers(variances),
        "neighbour_cosine": numbers(cosines),
        "shallow_deep_cosine": _shallow_and_deep(states[1:]),
    }


def _shallow_and_deep(states: list[Float[Tensor, "b t width"]]) -> float | None:
    """Mean cosine of the first and last quarter of ``z_1 … z_L``, rounded up."""
    if len(states) < 2:
        return None
    quarter = -(-len(states) // 4)
    ends = states[:quarter] + states[-quarter:]
    units = [nn.functional.normalize(state, dim=-1) for state in ends]
    # the mean over pairs is the product of the means
    shallow, deep = torch.stack(units[:quarter]).mean(0), torch.stack(units[quarter:]).mean(0)
    return numbers((shallow * deep).sum(-1).mean()[None])[0]


def _of_mixes(model: Model, trace: Trace) -> dict[str, Any]:
    mixes = [route.mixes() for _, route in trace.routes]
    if model.design.mixing_error() is None or not any(mixes):
        return {}
    rows, columns = (
        torch.stack([_sum_errors(own, axis) for own in mixes if own]) for axis in (-1, -2)
    )
    return {"mixing_row_error": numbers(rows), "mixing_column_error": numbers(columns)}


def _sum_errors(mixes: tuple[Float[Tensor, "*bt s s"], ...], axis: int) -> Tensor:
    return torch.stack([(mix.double().sum(axis) - 1).abs().max() for mix in mixes]).max()


def _drift(low: list[Tensor], full: list[Tensor]) -> Numbers:
    pairs = zip(low, full, strict=True)
    return numbers(torch.stack([(a[:1] - b).norm() / b.norm() for a, b in pairs]))


def _of_routers(trace: Trace) -> dict[str, Any]:
    if not trace.loads:
        return {}
    shares = torch.stack([load.share for load in trace.loads])
    return {"expert_share": numbers(shares), "busiest_share": numbers(shares.max(-1).values)}


def numbers(values: Tensor) -> list[Any]:
    """Nested lists of the values, read at once; None where one is not finite."""
    return _none_for_wild(values.tolist(), values.isfinite().tolist())


def _none_for_wild(values: list[Any], finite: list[Any]) -> list[Any]:
    pairs = zip(values, finite, strict=True)
    return [_none_for_wild(v, f) if isinstance(v, list) else v if f else None for v, f in pairs]


def _rounded(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _rounded(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_rounded(value) for value in data]
    return None if data is None else float(f"{data:.{DIGITS}g}")
