"""Causal multi-head and grouped-query attention, optionally over depth as well."""

from typing import final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from depthbench.nn.branch import Branch, Context, Depth, Entry
from depthbench.nn.kernels import fast, no_autocast
from depthbench.nn.parameters import Projection, Start
from depthbench.nn.rope import rotate, turn_pairs
from depthbench.shapes import Shape


@final
class Attention(Branch):
    """``softmax(q kᵀ / sqrt(head_dim)) v`` over the past, then the output projection.

    Queries, keys and values come from one product; RoPE turns queries and keys.
    """

    def __init__(self, shape: Shape, std_qk: float, std_v: float, std_o: float) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = shape.heads, shape.kv_heads, shape.head_dim
        keys = self.kv_heads * self.head_dim
        self.qkv = Projection(shape.width, [(shape.width + keys, std_qk), (keys, std_v)])
        self.o = Projection(shape.width, [(shape.width, std_o)])

    def starts(self) -> dict[str, Start]:
        return {}

    def forward(
        self, x: Float[Tensor, "b t d"], context: Context, depth: Depth | None = None
    ) -> tuple[Float[Tensor, "b t d"], Entry | None]:
        if depth is None and fast(x):
            return self._reordered(x, context), None
        qkv = self.qkv(x).unflatten(-1, (-1, self.head_dim))
        query_key, value = qkv.split([self.heads + self.kv_heads, self.kv_heads], dim=2)
        turned = rotate(query_key, context.cos, context.sin)
        query, key = turned.split([self.heads, self.kv_heads], dim=2)
        entry = Entry(query_key[:, :, self.heads :], value)
        if depth is None or not depth.entries:
            out = self._over_time(query, key, value)
        else:
            depth_query = query_key[:, :, : self.heads] if depth.rotated else query
            out = attend_time_and_depth(query, key, value, depth_query, depth.entries)
        return self.o(out.flatten(2)), entry

    def _reordered(self, x: Float[Tensor, "b t d"], context: Context) -> Float[Tensor, "b t d"]:
        """Attention over time with the pairs that RoPE turns side by side, as complex numbers."""
        keys = self.kv_heads * self.head_dim
        turns = context.turns_for(self.heads + self.kv_heads, keys)
        qkv = functional.linear(x, self.qkv.weight.index_select(0, turns.order))
        turned, value = turn_pairs(qkv, turns)
        query, key = turned.unflatten(-1, (-1, self.head_dim)).split(
            [self.heads, self.kv_heads], dim=2
        )
        with no_autocast(x):
            out = self._over_time(query, key, value.unflatten(-1, (-1, self.head_dim)))
        return self.o(out.flatten(2))

    def _over_time(
        self,
        query: Float[Tensor, "b t h hd"],
        key: Float[Tensor, "b t kv hd"],
        value: Float[Tensor, "b t kv hd"],
    ) -> Float[Tensor, "b t h hd"]:
        out = functional.scaled_dot_product_attention(
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            is_causal=True,
            enable_gqa=self.heads != self.kv_heads,
        )
        return out.transpose(1, 2)


def attend_time_and_depth(
    query: Float[Tensor, "b t h hd"],
    key: Float[Tensor, "b t kv hd"],
    value: Float[Tensor, "b t kv hd"],
    depth_query: Float[Tensor, "b t h hd"],
    entries: tuple[Entry, ...],
) -> Float[Tensor, "b t h hd"]:
    """One softmax over the causal sequence and the token's own depth entries (MoDA).

    ``softmax_{s ≤ t, n}([q_t·k_s, q'_t·k'_{t,n}] / sqrt(hd))``, applied to ``[v_s, v'_{t,n}]``.
    """
    _, length, heads, head_dim = query.shape
    groups = heads // key.shape[2]
    depth_key = torch.stack([entry.key for entry in entries], dim=3)
    depth_value = torch.stack([entry.value for entry in entries], dim=3)
    grouped = depth_query.unflatten(2, (-1, groups))
    depth_scores = torch.einsum("btkgc,btknc->btkgn", grouped, depth_key).flatten(2, 3)
    key = key.repeat_interleave(groups, dim=2).transpose(1, 2)
    value = value.repeat_interleave(groups, dim=2).transpose(1, 2)
    scores = query.transpose(1, 2) @ key.transpose(2, 3)
    causal = torch.ones(length, length, dtype=torch.bool, device=query.device).tril()
    scores = scores.masked_fill(~causal, float("-inf"))
    joint = torch.cat([scores, depth_scores.transpose(1, 2).to(scores.dtype)], dim=-1)
    weights = torch.softmax(joint * head_dim**-0.5, dim=-1, dtype=_at_least_float32(joint))
    weights = weights.to(value.dtype)
    over_time, over_depth = weights.split([length, len(entries)], dim=-1)
    over_depth = over_depth.transpose(1, 2).unflatten(2, (-1, groups))
    from_depth = torch.einsum("btkgn,btknc->btkgc", over_depth, depth_value).flatten(2, 3)
    return (over_time @ value).transpose(1, 2) + from_depth


def _at_least_float32(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)
