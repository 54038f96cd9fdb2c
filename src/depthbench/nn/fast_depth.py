"""Attention over time and depth: torch's flash kernel over time, joined exactly with depth.

Over time the kernel gives an output and the logarithm of its softmax's denominator. With the depth
logits that makes the joint denominator; the kernel's backward, given the joint output and the
joint denominator, is the joint softmax's backward for the part over time.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from depthbench.nn.branch import Entry
from depthbench.nn.kernels import first_order_only, no_autocast
from depthbench.nn.precision import at_least_float32


def channels_first(
    x: Float[Tensor, "b t n hd"], *, paired: bool = False
) -> Float[Tensor, "b t n hd"]:
    """``x`` in float32 or better, with memory ordered channel by channel.

    Then sums over channels and factors of a token run over contiguous memory. ``paired`` undoes
    the order of `PairTurns`.
    """
    x = at_least_float32(x)
    if paired:
        x = x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)
    return x.permute(3, 0, 1, 2).contiguous().permute(1, 2, 3, 0)


def _by_channel(x: Float[Tensor, "b t n hd"], groups: int) -> Float[Tensor, "hd g tokens"]:
    """Channels, then the query heads of a group, then ``(b, t, kv)`` as one axis."""
    return x.unflatten(2, (-1, groups)).permute(4, 3, 0, 1, 2).flatten(2).contiguous()


def _by_head(
    x: Float[Tensor, "*c g tokens"], like: Float[Tensor, "b t h hd"]
) -> Float[Tensor, "b t h *c"]:
    """The way back from `_by_channel`, or for numbers without channels."""
    heads = like.shape[2] // x.shape[-2]
    x = x.unflatten(-1, (like.shape[0], like.shape[1], heads))
    order = (1, 2, 3, 0) if x.dim() == 4 else (2, 3, 4, 1, 0)
    return x.permute(order).flatten(2, 3)


def _flash(
    query: Float[Tensor, "b h t hd"], key: Float[Tensor, "b h t hd"], value: Tensor
) -> tuple[Tensor, Tensor]:
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return attention(query, key, value, 0.0, True)


class _AttendTimeAndDepth(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, depth_query: Tensor, *bank: Tensor
    ) -> Tensor:
        count, groups = len(bank) // 2, query.shape[2] // key.shape[2]
        over_time, log_time = _flash(*_for_flash(query, key, value))
        own = _by_channel(depth_query, groups)
        keys, values = ([_by_channel(x, 1) for x in part] for part in (bank[:count], bank[count:]))
        scores = own.new_empty(count, *own.shape[1:])
        product = torch.empty_like(own)
        for row, depth_key in zip(scores, keys, strict=True):
            torch.sum(torch.mul(own, depth_key, out=product), dim=0, out=row)
        scores *= query.shape[3] ** -0.5
        log_own = _by_channel(log_time.transpose(1, 2).unsqueeze(-1), groups)[0]
        log_all = torch.logaddexp(torch.logsumexp(scores, dim=0), log_own)
        weights = scores.sub_(log_all).exp_()
        from_depth = values[0] * weights[0]
        for weight, depth_value in zip(weights[1:], values[1:], strict=True):
            from_depth.addcmul_(depth_value, weight)
        share = _by_head((log_own - log_all).exp_(), query).unsqueeze(-1)
        # The kernel's layout, which its backward takes for granted.
        out = (over_time.transpose(1, 2) * share).add_(_by_head(from_depth, query))
        joint = _by_head(log_all, query).transpose(1, 2)
        ctx.save_for_backward(query, key, value, depth_query, out, joint, weights, *bank)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        first_order_only("attention over depth")
        query, key, value, depth_query, out, joint, weights, *bank = ctx.saved_tensors
        count, groups = len(bank) // 2, query.shape[2] // key.shape[2]
        grad = grads[0].contiguous()
        dquery, dkey, dvalue = _flash_backward(grad, query, key, value, out, joint)
        keys, values = ([_by_channel(x, 1) for x in part] for part in (bank[:count], bank[count:]))
        own, down = _by_channel(depth_query, groups), _by_channel(grad, groups)
        along = _by_channel((grad * out).sum(-1, keepdim=True), groups)[0]
        down_own, product = torch.zeros_like(own), torch.empty_like(own)
        dkeys: list[Tensor] = []
        dvalues: list[Tensor] = []
        for weight, depth_key, depth_value in zip(weights, keys, values, strict=True):
            slope = torch.sum(torch.mul(down, depth_value, out=product), dim=0)
            slope.sub_(along).mul_(weight).mul_(query.shape[3] ** -0.5)
            down_own.addcmul_(depth_key, slope)
            dkeys.append(_entry_gradient(own, slope, bank[0]))
            dvalues.append(_entry_gradient(down, weight, bank[0]))
        return (dquery, dkey, dvalue, _by_head(down_own, query), *dkeys, *dvalues)


def _for_flash(
    query: Float[Tensor, "b t h hd"],
    key: Float[Tensor, "b t kv hd"],
    value: Float[Tensor, "b t kv hd"],
) -> tuple[Tensor, Tensor, Tensor]:
    groups = query.shape[2] // key.shape[2]
    if groups > 1:
        key, value = (x.repeat_interleave(groups, dim=2) for x in (key, value))
    return query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)


def _flash_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, joint: Tensor
) -> tuple[Tensor, ...]:
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    inputs = _for_flash(query, key, value)
    found = backward(grad.transpose(1, 2), *inputs, out.transpose(1, 2), joint, 0.0, True)
    dquery, dkey, dvalue = (x.transpose(1, 2) for x in found)
    groups = query.shape[2] // key.shape[2]
    if groups > 1:
        dkey, dvalue = (x.unflatten(2, (-1, groups)).sum(3) for x in (dkey, dvalue))
    return dquery, dkey, dvalue


def _entry_gradient(
    vector: Float[Tensor, "hd g tokens"], factor: Float[Tensor, "g tokens"], like: Tensor
) -> Float[Tensor, "b t kv hd"]:
    """``Σ_g factor_g vector_g``, laid out as `channels_first` does."""
    total = vector[:, 0] * factor[0]
    for group in range(1, vector.shape[1]):
        total.addcmul_(vector[:, group], factor[group])
    return total.unflatten(1, like.shape[:3]).permute(1, 2, 3, 0)


def attend_time_and_depth_fast(
    query: Float[Tensor, "b t h hd"],
    key: Float[Tensor, "b t kv hd"],
    value: Float[Tensor, "b t kv hd"],
    depth_query: Float[Tensor, "b t h hd"],
    entries: Sequence[Entry],
) -> Float[Tensor, "b t h hd"]:
    """The plain version of `depthbench.nn.attention` in float32 or better, with its own backward.

    Fast when ``depth_query`` and ``entries`` are `channels_first`; right in any layout.
    """
    bank = (*(entry.key for entry in entries), *(entry.value for entry in entries))
    inputs = [at_least_float32(x) for x in (query, key, value, depth_query, *bank)]
    with no_autocast(query):
        return _AttendTimeAndDepth.apply(*inputs)  # pyright: ignore[reportReturnType]
