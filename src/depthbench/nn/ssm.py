"""A selective state-space branch: a linear recurrence whose step and decay depend on the token."""

import math
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from depthbench.nn.branch import Branch, Context, Depth, projections_of
from depthbench.nn.cache import Memory, Room
from depthbench.nn.norm import RMSNorm
from depthbench.nn.parameters import Projection, Start, constant
from depthbench.nn.precision import at_least_float32, full_precision
from depthbench.nn.work import Work

DECAY_RANGE = (1.0, 16.0)
"""Of ``-A`` at the start, uniform."""
STEP_RANGE = (1e-3, 1e-1)
"""Of ``softplus(dt bias)`` at the start, uniform in the logarithm."""

FORGET = -1e4
"""A logarithm of decay whose exponential is 0 in float64 too, and no infinity."""


@dataclass(frozen=True)
class SSMSizes:
    """Sizes of one state-space branch."""

    width: int
    heads: int
    head_width: int
    state: int
    """Entries of a head's state for each of its ``head_width`` features."""
    kernel: int
    """Tokens that the convolution sees."""
    chunk: int
    """Tokens that the scan treats as one matrix."""

    @property
    def inner(self) -> int:
        """Features of all heads."""
        return self.heads * self.head_width

    @property
    def convolved(self) -> int:
        """Features of ``x``, ``B`` and ``C``, which pass through the convolution."""
        return self.inner + 2 * self.state


class SSMMemory(Memory):
    """The convolution's last inputs, and the state; both in float32 or better."""

    def __init__(self, room: Room, sizes: SSMSizes) -> None:
        dtype = torch.promote_types(room.dtype, torch.float32)
        tail = (room.batch, sizes.kernel - 1, sizes.convolved)
        state = (room.batch, sizes.state, sizes.heads, sizes.head_width)
        self.tail = torch.zeros(tail, device=room.device, dtype=dtype)
        self.state = torch.zeros(state, device=room.device, dtype=dtype)

    def tensors(self) -> tuple[Tensor, ...]:
        return self.tail, self.state


@final
class SelectiveStateSpace(Branch):
    """Mamba-2 (arXiv 2405.21060), with one group of ``B`` and ``C`` for all heads.

    ``[z, x, B, C, dt] = W_in u``, and ``x, B, C`` pass through a causal depthwise convolution and
    silu. ``Δ = softplus(dt + bias)``, ``A = -exp(log_decay)``, both one number a head;
    ``H_t = exp(Δ_t A) H_(t-1) + Δ_t B_t x_tᵀ``, ``y_t = H_tᵀ C_t + skip · x_t``;
    the output is ``W_out RMSNorm(y ⊙ silu(z))``. Convolution and recurrence in float32 or better.
    Ours: no bias in the convolution, as everywhere in the backbone.

    Start: ``-A`` uniform in [1, 16]; ``softplus(bias)`` log-uniform in [0.001, 0.1]; skip 1.
    """

    def __init__(self, sizes: SSMSizes, std_in: float, std_out: float, norm_eps: float) -> None:
        super().__init__()
        self.sizes = sizes
        features = sizes.inner + sizes.convolved + sizes.heads
        self.into = Projection(sizes.width, [(features, std_in)])
        self.kernel = nn.Parameter(torch.empty(sizes.convolved, sizes.kernel))
        self.step_bias = nn.Parameter(torch.empty(sizes.heads))
        self.log_decay = nn.Parameter(torch.empty(sizes.heads))
        self.skip = nn.Parameter(torch.empty(sizes.heads))
        self.norm = RMSNorm(sizes.inner, norm_eps)
        self.out = Projection(sizes.inner, [(sizes.width, std_out)])

    def starts(self) -> dict[str, Start]:
        return {
            "kernel": Start(_fill_kernel, decay=True),
            "step_bias": Start(_fill_step_bias, decay=False),
            "log_decay": Start(_fill_log_decay, decay=False),
            "skip": constant(1.0),
        }

    def last(self) -> tuple[Projection, ...]:
        return (self.out,)

    def forward(
        self,
        x: Float[Tensor, "b t d"],
        context: Context,
        depth: Depth | None = None,
        memory: Memory | None = None,
    ) -> tuple[Float[Tensor, "b t d"], None]:
        assert memory is None or isinstance(memory, SSMMemory)
        sizes, valid = self.sizes, context.valid(x.shape[1])
        into = self.into(x)
        with full_precision(x):
            gate, mixed, step = at_least_float32(into).split(
                [sizes.inner, sizes.convolved, sizes.heads], dim=-1
            )
            step = functional.softplus(step + self.step_bias)
            if valid is not None:
                mixed, step = mixed * valid.unsqueeze(-1), step * valid.unsqueeze(-1)
            age = None if context.starts is None else _age(context.starts)
            mixed = functional.silu(self.convolved(mixed, memory, age))
            value, write, read = mixed.split([sizes.inner, sizes.state, sizes.state], dim=-1)
            value = value.unflatten(-1, (sizes.heads, sizes.head_width))
            y = self.scanned(value, step, write, read, memory, age)
            y = y + self.skip.unsqueeze(-1) * value
            y = y.flatten(2) * functional.silu(gate)
        return self.out(self.norm(y)), None

    def convolved(
        self,
        x: Float[Tensor, "b t c"],
        memory: SSMMemory | None,
        age: Int[Tensor, "b t 1"] | None = None,
    ) -> Float[Tensor, "b t c"]:
        """``Σ_i kernel_i x_(t - K + 1 + i)``, zeros before the sequence, or the document."""
        before = self.sizes.kernel - 1
        if age is not None:
            length, kernel = x.shape[1], self.kernel.to(x.dtype)
            earlier = [functional.pad(x, (0, 0, back, 0))[:, :length] for back in range(before + 1)]
            terms = [
                torch.where(age >= back, kernel[:, before - back] * one, 0.0)
                for back, one in enumerate(earlier)
            ]
            return torch.stack(terms).sum(0)
        if memory is None:
            x = functional.pad(x, (0, 0, before, 0))
        else:
            x = torch.cat([memory.tail.to(x.dtype), x], dim=1)
            memory.tail.copy_(x[:, x.shape[1] - before :])
        kernel = self.kernel.to(x.dtype).unsqueeze(1)
        return functional.conv1d(x.mT, kernel, groups=self.sizes.convolved).mT

    def scanned(
        self,
        value: Float[Tensor, "b t h p"],
        step: Float[Tensor, "b t h"],
        write: Float[Tensor, "b t n"],
        read: Float[Tensor, "b t n"],
        memory: SSMMemory | None,
        age: Int[Tensor, "b t 1"] | None = None,
    ) -> Float[Tensor, "b t h p"]:
        """The recurrence's outputs; ``memory`` holds its state before and after.

        A document's first token (``age`` 0) forgets all that was before.
        """
        decay = -step * torch.exp(at_least_float32(self.log_decay))
        if age is not None:
            decay = torch.where(age == 0, FORGET, decay)
        value = value * step.unsqueeze(-1)
        if memory is None:
            return scan(value, decay, write, read, None, self.sizes.chunk)[0]
        state = memory.state.to(value.dtype)
        if value.shape[1] == 1:
            y, state = scan_plain(value, decay, write, read, state)
        else:
            y, state = scan(value, decay, write, read, state, self.sizes.chunk)
        memory.state.copy_(state)
        return y

    def new_memory(self, room: Room) -> SSMMemory:
        return SSMMemory(room, self.sizes)

    def work(self, length: int) -> Work:
        """The convolution and the chunked scan count as products, as torch counts them."""
        sizes = self.sizes
        convolution = 2 * length * sizes.convolved * sizes.kernel
        chunk = min(sizes.chunk, length)
        chunks = math.ceil(length / chunk)
        squares = 2 * chunks * chunk**2 * (sizes.state + sizes.inner)
        states = 2 * 2 * chunks * chunk * sizes.state * sizes.inner
        between = 2 * (chunks + 1) ** 2 * sizes.state * sizes.inner
        own = Work(products=convolution + squares + states + between)
        return projections_of(self, length) + own


def scan_plain(
    value: Float[Tensor, "b t h p"],
    decay: Float[Tensor, "b t h"],
    write: Float[Tensor, "b t n"],
    read: Float[Tensor, "b t n"],
    state: Float[Tensor, "b n h p"] | None,
) -> tuple[Float[Tensor, "b t h p"], Float[Tensor, "b n h p"]]:
    """``H_t = exp(decay_t) H_(t-1) + write_t value_tᵀ``, ``y_t = H_tᵀ read_t``, token by token.

    Returns the outputs and the last state; ``state`` is the one before the first token, or 0.
    """
    if state is None:
        state = value.new_zeros(len(value), write.shape[-1], *value.shape[2:])
    outputs = []
    for t in range(value.shape[1]):
        added = torch.einsum("bn,bhp->bnhp", write[:, t], value[:, t])
        state = decay[:, t].exp()[:, None, :, None] * state + added
        outputs.append(torch.einsum("bn,bnhp->bhp", read[:, t], state))
    return torch.stack(outputs, dim=1), state


def scan(
    value: Float[Tensor, "b t h p"],
    decay: Float[Tensor, "b t h"],
    write: Float[Tensor, "b t n"],
    read: Float[Tensor, "b t n"],
    state: Float[Tensor, "b n h p"] | None,
    chunk: int,
) -> tuple[Float[Tensor, "b t h p"], Float[Tensor, "b n h p"]]:
    """`scan_plain` by chunks: a masked matrix within each, the recurrence over their ends.

    A decay between two tokens is the exponential of a sum of logarithms, which is never positive;
    no quotient of decays is formed. Tokens that fill up the last chunk decay and add nothing.
    """
    length, heads = value.shape[1], value.shape[2]
    size = min(chunk, length)
    fill = -length % size
    # c chunks of q tokens
    value = functional.pad(value, (0, 0, 0, 0, 0, fill)).unflatten(1, (-1, size))
    decay = functional.pad(decay, (0, 0, 0, fill)).unflatten(1, (-1, size))
    write = functional.pad(write, (0, 0, 0, fill)).unflatten(1, (-1, size))
    read = functional.pad(read, (0, 0, 0, fill)).unflatten(1, (-1, size))
    kept = segment_sums(decay.mT).exp()
    inside = ((read @ write.mT).unsqueeze(2) * kept) @ value.transpose(2, 3)
    to_end = kept[..., -1, :].mT.unsqueeze(-1)
    added = (write.mT @ (value * to_end).flatten(3)).unflatten(-1, (heads, -1))
    if state is None:
        state = added.new_zeros(added[:, 0].shape)
    states = torch.cat([state.unsqueeze(1), added], dim=1)
    from_start = decay.cumsum(2)
    between = segment_sums(functional.pad(from_start[:, :, -1].mT, (1, 0))).exp()
    states = torch.einsum("bhzc,bcnhp->bznhp", between, states)
    entering = (read @ states[:, :-1].flatten(3)).unflatten(-1, (heads, -1))
    y = inside.transpose(2, 3) + entering * from_start.exp().unsqueeze(-1)
    return y.flatten(1, 2)[:, :length], states[:, -1]


def segment_sums(x: Float[Tensor, "*axes q"]) -> Float[Tensor, "*axes q q"]:
    """``out[i, j] = Σ_(j < k ≤ i) x_k`` for ``j ≤ i``, and -inf above the diagonal.

    Sums of the terms themselves: a difference of two long sums would lose its digits.
    """
    size = x.shape[-1]
    below = torch.ones(size, size, dtype=torch.bool, device=x.device).tril(-1)
    terms = x.unsqueeze(-1).expand(*x.shape, size).masked_fill(~below, 0.0)
    return terms.cumsum(-2).masked_fill(below.mT, float("-inf"))


def _age(starts: Int[Tensor, "b t"]) -> Int[Tensor, "b t 1"]:
    """Tokens of its document before each."""
    positions = torch.arange(starts.shape[1], device=starts.device)
    return (positions - starts).unsqueeze(-1)


def _fill_kernel(tensor: Tensor, generator: torch.Generator) -> None:
    """Uniform within ``1 / sqrt(kernel)``, as torch's own convolution."""
    bound = tensor.shape[-1] ** -0.5
    tensor.uniform_(-bound, bound, generator=generator)


def _fill_step_bias(tensor: Tensor, generator: torch.Generator) -> None:
    """The inverse of softplus at log-uniform steps."""
    low, high = (math.log(step) for step in STEP_RANGE)
    steps = tensor.uniform_(low, high, generator=generator).exp_()
    tensor.copy_(steps + torch.log(-torch.expm1(-steps)))


def _fill_log_decay(tensor: Tensor, generator: torch.Generator) -> None:
    tensor.uniform_(*DECAY_RANGE, generator=generator).log_()
