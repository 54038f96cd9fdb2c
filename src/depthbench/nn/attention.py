"""Causal multi-head and grouped-query attention, optionally over depth as well."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import final

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from depthbench.nn.branch import Backbone, Branch, Context, Depth, Entry, projections_of
from depthbench.nn.cache import KeyValues, Memory, Room
from depthbench.nn.fast_depth import attend_time_and_depth_fast, channels_first
from depthbench.nn.kernels import fast, no_autocast
from depthbench.nn.norm import RMSNorm
from depthbench.nn.parameters import Projection, Start
from depthbench.nn.precision import at_least_float32
from depthbench.nn.rope import rotate, turn_pairs
from depthbench.nn.work import Work
from depthbench.shapes import Shape


@final
class Attention(Branch):
    """``softmax(q kᵀ / sqrt(head_dim)) v`` over the past, then the output projection.

    Queries, keys and values come from one product; queries and keys are normed where the backbone
    says so, and turned by RoPE.
    """

    def __init__(
        self, shape: Shape, backbone: Backbone, std_qk: float, std_v: float, std_o: float
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = shape.heads, shape.kv_heads, shape.head_dim
        rows = [(shape.queries + shape.keys, std_qk), (shape.keys, std_v)]
        self.qkv = Projection(shape.width, rows, bias=backbone.qkv_bias)
        self.o = Projection(shape.queries, [(shape.width, std_o)])
        self.qk_norm = backbone.qk_norm
        if self.qk_norm is not None:
            one = shape.head_dim
            widths = (one, one) if self.qk_norm == "head" else (shape.queries, shape.keys)
            self.query_norm, self.key_norm = (RMSNorm(n, backbone.norm_eps) for n in widths)

    def starts(self) -> dict[str, Start]:
        return {}

    def last(self) -> tuple[Projection, ...]:
        return (self.o,)

    def forward(
        self,
        x: Float[Tensor, "b t d"],
        context: Context,
        depth: Depth | None = None,
        memory: Memory | None = None,
    ) -> tuple[Float[Tensor, "b t d"], Entry | None]:
        # an adapter around the product has more to it than the matrix
        plain = isinstance(self.qkv, Projection) and self.qkv.bias is None and self.qk_norm is None
        if fast(x) and memory is None and context.mask is None and plain:
            return self._reordered(x, context, depth)
        qkv = self.qkv(x).unflatten(-1, (-1, self.head_dim))
        exact = memory is None and x.device.type == "cpu"
        if exact:
            # on CPU the attention kernel is up to nine times slower in bfloat16
            qkv = at_least_float32(qkv)
        query_key, value = qkv.split([self.heads + self.kv_heads, self.kv_heads], dim=2)
        value = mixed_values(value, depth)
        if self.qk_norm is not None:
            query_key = self._normed(query_key)
        turned = rotate(query_key, context.cos, context.sin)
        query, key = turned.split([self.heads, self.kv_heads], dim=2)
        entry = Entry(query_key[:, :, self.heads :], value)
        if memory is not None:
            assert isinstance(memory, KeyValues)
            key, value = memory.extend(context.past, key, value)
        if depth is None or not depth.entries:
            with no_autocast(x) if exact else nullcontext():
                out = self._over_time(query, key, value, context.mask)
        else:
            depth_query = query_key[:, :, : self.heads] if depth.rotated else query
            out = attend_time_and_depth(query, key, value, depth_query, depth.entries, context.mask)
        return self.o(out.flatten(2).to(self.o.weight.dtype)), entry

    def _normed(self, query_key: Float[Tensor, "b t h hd"]) -> Float[Tensor, "b t h hd"]:
        parts = query_key.split([self.heads, self.kv_heads], dim=2)
        norms = (self.query_norm, self.key_norm)
        if self.qk_norm == "head":
            normed = [norm(part) for norm, part in zip(norms, parts, strict=True)]
        else:
            normed = [
                norm(part.flatten(2)).view(part.shape)
                for norm, part in zip(norms, parts, strict=True)
            ]
        return torch.cat(normed, dim=2).to(query_key.dtype)

    def _reordered(
        self, x: Float[Tensor, "b t d"], context: Context, depth: Depth | None
    ) -> tuple[Float[Tensor, "b t d"], Entry | None]:
        """The same with the pairs that RoPE turns side by side, as complex numbers."""
        heads, kv_heads = self.heads, self.kv_heads
        turns = context.turns_for(heads + kv_heads, kv_heads * self.head_dim)
        qkv = functional.linear(x, self.qkv.weight.index_select(0, turns.order))
        turned, value = (y.unflatten(-1, (-1, self.head_dim)) for y in turn_pairs(qkv, turns))
        query, key = turned.split([heads, kv_heads], dim=2)
        if depth is None:
            with no_autocast(x):
                out = self._over_time(query, key, value, None)
            return self.o(out.flatten(2).to(self.o.weight.dtype)), None
        value = mixed_values(value, depth)
        before = qkv[..., : (heads + kv_heads) * self.head_dim].unflatten(-1, (-1, self.head_dim))
        entry = Entry(channels_first(before[:, :, heads:], paired=True), channels_first(value))
        if depth.entries:
            own = query if not depth.rotated else before[:, :, :heads]
            own = channels_first(own, paired=True)
            out = attend_time_and_depth(query, key, value, own, depth.entries, None)
        else:
            with no_autocast(x):
                out = self._over_time(query, key, value, None)
        return self.o(out.flatten(2).to(self.o.weight.dtype)), entry

    def new_memory(self, room: Room) -> KeyValues:
        return KeyValues(room, self.kv_heads, self.head_dim)

    def work(self, length: int) -> Work:
        pairs = 2 * length**2 * self.heads * self.head_dim
        return projections_of(self, length) + Work(attention=pairs)

    def _over_time(
        self,
        query: Float[Tensor, "b t h hd"],
        key: Float[Tensor, "b n kv hd"],
        value: Float[Tensor, "b n kv hd"],
        mask: Bool[Tensor, "*rows t n"] | None,
    ) -> Float[Tensor, "b t h hd"]:
        causal = mask is None
        # a statement, not `and`: the length may be a symbol, but the kernel needs a truth value
        if query.shape[1] == 1:
            causal = False
        out = functional.scaled_dot_product_attention(
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            attn_mask=per_head(mask),
            is_causal=causal,
            enable_gqa=self.heads != self.kv_heads,
        )
        return out.transpose(1, 2)


def per_head(mask: Bool[Tensor, "*rows t n"] | None) -> Bool[Tensor, "*rows 1 t n"] | None:
    """``mask`` with an axis for heads."""
    return None if mask is None else mask.unsqueeze(-3)


def mixed_values(
    value: Float[Tensor, "b t kv hd"], depth: Depth | None
) -> Float[Tensor, "b t kv hd"]:
    """An attention's values, mixed with an earlier attention's where the design says so."""
    mix = None if depth is None else depth.values
    return value if mix is None else mix.own * value + mix.first * mix.value


def attend_time_and_depth_plain(
    query: Float[Tensor, "b t h hd"],
    key: Float[Tensor, "b n kv hd"],
    value: Float[Tensor, "b n kv hd"],
    depth_query: Float[Tensor, "b t h hd"],
    entries: Sequence[Entry],
    mask: Bool[Tensor, "*rows t n"] | None = None,
) -> Float[Tensor, "b t h hd"]:
    """One softmax over the sequence and the token's own depth entries (MoDA).

    ``softmax_{s ≤ t, n}([q_t·k_s, q'_t·k'_{t,n}] / sqrt(hd))``, applied to ``[v_s, v'_{t,n}]``.
    ``mask`` replaces ``s ≤ t``; a single query without one sees all keys.
    """
    length, seen = query.shape[1], key.shape[1]
    heads, head_dim = query.shape[2:]
    groups = heads // key.shape[2]
    depth_key = torch.stack([entry.key for entry in entries], dim=3)
    depth_value = torch.stack([entry.value for entry in entries], dim=3)
    grouped = depth_query.unflatten(2, (-1, groups)).to(depth_key.dtype)
    depth_scores = torch.einsum("btkgc,btknc->btkgn", grouped, depth_key).flatten(2, 3)
    key = key.repeat_interleave(groups, dim=2).transpose(1, 2)
    value = value.repeat_interleave(groups, dim=2).transpose(1, 2)
    scores = query.transpose(1, 2) @ key.transpose(2, 3)
    if mask is None:
        mask = torch.ones(length, seen, dtype=torch.bool, device=query.device).tril(seen - length)
    scores = scores.masked_fill(~mask.unsqueeze(-3), float("-inf"))
    joint = torch.cat([scores, depth_scores.transpose(1, 2).to(scores.dtype)], dim=-1)
    precise = torch.promote_types(joint.dtype, torch.float32)
    weights = torch.softmax(joint * head_dim**-0.5, dim=-1, dtype=precise).to(value.dtype)
    over_time, over_depth = weights.split([seen, len(entries)], dim=-1)
    over_depth = over_depth.transpose(1, 2).unflatten(2, (-1, groups)).to(depth_value.dtype)
    from_depth = torch.einsum("btkgn,btknc->btkgc", over_depth, depth_value).flatten(2, 3)
    return (over_time @ value).transpose(1, 2) + from_depth


def attend_time_and_depth(
    query: Float[Tensor, "b t h hd"],
    key: Float[Tensor, "b n kv hd"],
    value: Float[Tensor, "b n kv hd"],
    depth_query: Float[Tensor, "b t h hd"],
    entries: Sequence[Entry],
    mask: Bool[Tensor, "*rows t n"] | None = None,
) -> Float[Tensor, "b t h hd"]:
    """`attend_time_and_depth_plain`, by the version that suits; the fast one is causal alone."""
    if fast(query) and mask is None and query.shape[1] == key.shape[1]:
        return attend_time_and_depth_fast(query, key, value, depth_query, entries)
    return attend_time_and_depth_plain(query, key, value, depth_query, entries, mask)
