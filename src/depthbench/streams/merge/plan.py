"""Which streams are merged into which, and the model with fewer of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from depthbench.designs.base import Fewer
from depthbench.errors import DepthbenchError
from depthbench.nn.block import Block
from depthbench.nn.model import Model
from depthbench.probes.lab import Lab, Part, Task
from depthbench.probes.subject import Subject
from depthbench.probes.walk import Walker
from depthbench.streams.sites import states_at

PROPORTIONAL = 1e-6
"""Share of a stream's squares that another, scaled, may leave for the two to be proportional:
float32 leaves about 1e-13, and 1e-9 behind many sites."""


class Products(Task):
    """Sums over tokens, by place: ``H_i · H_j`` of all streams, ``|H_i - H_i(0)|²``, ``H_i``."""

    name: ClassVar[str] = "stream-products"

    @torch.no_grad()
    def measure(self, walker: Walker, subject: Subject) -> Part:
        session = walker.session
        products, moved, sums = [], [], []
        first: Tensor | None = None
        for z in states_at(session, subject):
            own = session.batch.text(z).double()
            first = own if first is None else first
            products.append(torch.einsum("nid,njd->ij", own, own))
            moved.append((own - first).square().sum((0, 2)))
            sums.append(own.sum(0))
        found = {"products": products, "moved": moved, "sums": sums}
        return {name: torch.stack(one).cpu().numpy() for name, one in found.items()}


@dataclass(frozen=True)
class Alike:
    """How far streams are multiples of each other, of what they were, or of nothing."""

    products: NDArray[np.float64]
    """``(places, s, s)``."""
    moved: NDArray[np.float64]
    """``(places, s)``: sums over tokens of ``|H - H(0)|²``."""
    spread: NDArray[np.float64]
    """``(places, s)``: sums over tokens of ``|H - mean|²``."""

    @classmethod
    def measured(cls, lab: Lab) -> "Alike":
        """Over all text."""
        part = lab.summed(Products())
        squares = np.einsum("pii->pi", part["products"])
        spread = squares - (part["sums"] ** 2).sum(-1) / lab.tokens(lab.batches)
        return cls(part["products"], part["moved"], spread)

    def still(self) -> list[int]:
        """Streams that stay at every place what they are at the first."""
        squares = np.einsum("pii->pi", self.products)
        return np.nonzero((self.moved <= PROPORTIONAL * squares[0]).all(0))[0].tolist()

    def constant(self) -> list[int]:
        """Streams that are the same for all tokens at every place behind site 0."""
        squares = np.einsum("pii->pi", self.products)
        return np.nonzero((self.spread[1:] <= PROPORTIONAL * squares[1:]).all(0))[0].tolist()

    @property
    def left(self) -> NDArray[np.float64]:
        """``1 - (H_i·H_j)² / (|H_i|² |H_j|²)`` by place: what one leaves of the other."""
        squares = np.einsum("pii->pi", self.products)
        both = squares[:, :, None] * squares[:, None, :]
        with np.errstate(invalid="ignore", divide="ignore"):
            left = 1 - self.products**2 / both
        # two streams that are nothing are equal; one that is nothing leaves all of the other
        nothing = squares == 0
        left = np.where(both == 0, 1.0, left)
        return np.where(nothing[:, :, None] & nothing[:, None, :], 0.0, left)

    @property
    def farthest(self) -> NDArray[np.float64]:
        """The most of `left` over all places, for each pair."""
        return self.left.max(0)

    def copies(self) -> list[tuple[int, int]]:
        """Pairs of streams that are multiples of each other at every place."""
        far = self.farthest
        return [
            (i, j)
            for i in range(len(far))
            for j in range(i + 1, len(far))
            if far[i, j] <= PROPORTIONAL
        ]


def pairs_of(text: str, streams: int) -> dict[int, int]:
    """``3:1,2:0`` as stream 3 into 1 and 2 into 0.

    Raises `DepthbenchError` for what is none, and for a stream that is merged and kept.
    """
    into: dict[int, int] = {}
    for pair in text.split(","):
        first, _, second = pair.partition(":")
        try:
            one, other = int(first), int(second)
        except ValueError:
            raise DepthbenchError(
                f"pairs = '{text}': '{pair}' is no pair of streams. Write it as 3:1,2:0"
            ) from None
        if one == other or not {one, other} <= set(range(streams)) or one in into:
            raise DepthbenchError(
                f"pairs = '{text}': '{pair}' must name two of the streams 0 to {streams - 1}, each "
                "merged once"
            )
        into[one] = other
    both = set(into) & set(into.values())
    if both:
        raise DepthbenchError(
            f"pairs = '{text}': stream {min(both)} is merged away, so nothing can go into it"
        )
    return into


def nearest_pairs(alike: Alike, fewer: int) -> dict[int, int]:
    """Merges that leave ``fewer`` streams: again and again the two that leave least of each other.

    The later one goes into the earlier. Raises `DepthbenchError` for a number that is not fewer.
    """
    far = alike.left.mean(0)
    count = len(far)
    if not 1 <= fewer < count:
        raise DepthbenchError(
            f"into = {fewer} must be 1 to {count - 1}, for the model has {count} streams. Name "
            "fewer with --into"
        )
    group = {one: one for one in range(count)}
    while len(set(group.values())) > fewer:
        kept = sorted(set(group.values()))
        pairs = [(far[i, j], i, j) for i in kept for j in kept if i < j]
        _, first, second = min(pairs)
        group = {one: first if own == second else own for one, own in group.items()}
    return {one: own for one, own in group.items() if one != own}


def kept_of(streams: int, into: Mapping[int, int]) -> tuple[int, ...]:
    """Streams that are not merged away."""
    return tuple(one for one in range(streams) if one not in into)


def fewer_of(
    alike: Alike,
    into: Mapping[int, int],
    *,
    means: bool = False,
    dropped: bool = False,
    exact: bool = True,
) -> Fewer:
    """Streams in terms of those that are kept.

    A kept one goes on as it is, or with ``means`` as the mean of its group. Every other is a
    multiple of it, the nearest by least squares at each place; nothing at all if ``dropped``.
    Unless ``exact``, the new model may be one that only training makes do the same.
    """
    count = alike.products.shape[-1]
    kept = kept_of(count, into)
    group = [kept.index(into.get(one, one)) for one in range(count)]
    belongs = np.zeros((count, len(kept)))
    belongs[np.arange(count), group] = 1
    collect = belongs / belongs.sum(0) if means else np.eye(count)[:, list(kept)]
    every = []
    for products in alike.products:
        across, own = products @ collect, collect.T @ products @ collect
        sizes = np.diag(own)
        scale = np.divide(across, sizes, out=np.zeros_like(across), where=sizes > 0)
        expand = belongs * scale
        if dropped:
            expand[list(into)] = 0
        every.append(torch.from_numpy(expand))
    return Fewer(kept, every[:-1], every[-1], torch.from_numpy(collect), exact)


def even(fewer: Fewer) -> Fewer:
    """The same with streams at such sizes, behind site 0, that the readout is their mean."""
    share = fewer.readout.mean(0)
    size = share * len(share)
    sites = [one if site == 0 else one / size for site, one in enumerate(fewer.sites)]
    return Fewer(fewer.kept, sites, fewer.readout / size, fewer.collect * size, fewer.exact)


@torch.no_grad()
def with_fewer(model: Model, fewer: Fewer) -> Model:
    """A model with fewer streams that does what ``model`` does where they stand for the others.

    Raises `DepthbenchError` where its design cannot merge these.
    """
    design = model.design.fewer(fewer.kept, fewer.exact)
    config = model.config.model_copy(update={"design": design})
    weight = model.embed.weight
    new = Model.on_meta(config).to(weight.dtype).to_empty(device=weight.device)
    pairs: Sequence[tuple[torch.nn.Module, torch.nn.Module]] = [
        (model.embed, new.embed),
        (model.final_norm, new.final_norm),
        (model.head, new.head),
    ]
    for old, own in pairs:
        own.load_state_dict(old.state_dict())
    if new.design.reads_out_mean():
        fewer = even(fewer)
    sites = [_on(weight, one) for one in fewer.sites]
    collect = _on(weight, fewer.collect)
    for number, block in enumerate(model.blocks):
        fresh = new.blocks[number]
        assert isinstance(block, Block)
        assert isinstance(fresh, Block)
        for side, ((branch, connection), (own, joined)) in enumerate(
            zip(block.pairs(), fresh.pairs(), strict=True)
        ):
            own.load_state_dict(branch.state_dict())
            connection.fewer_into(joined, sites[2 * number + side], collect)
    at_root = Fewer(fewer.kept, sites, _on(weight, fewer.readout), collect, fewer.exact)
    model.design.fewer_into(new.design, at_root)
    if model.documents_apart:
        new.keep_documents_apart()
    return new.eval()


def _on(like: Tensor, one: Float[Tensor, "m s"]) -> Float[Tensor, "m s"]:
    return one.to(like.device)
