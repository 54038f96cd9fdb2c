"""Weighted sums over the outputs of all blocks so far: what dense designs share."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor

from depthbench.designs.base import Connection, Design, Entry, Route, Site
from depthbench.nn.branch import Backbone, Context
from depthbench.nn.kernels import hold
from depthbench.nn.norm import RMSNorm
from depthbench.nn.work import Work
from depthbench.shapes import Shape


@dataclass(frozen=True)
class DenseRoute(Route):
    """Weights of the sum that stands for the residual stream at this site."""

    weights: Float[Tensor, "l *bt"] | None = None
    """None where the stream is the last block's output as it is."""
    sources: tuple[int, ...] = ()
    """What each weight belongs to: 0 the embedding, ``i`` the output of block ``i - 1``."""


@dataclass(frozen=True)
class DenseState:
    """The residual stream, and the outputs ``X_i`` that later sums may read."""

    stream: Float[Tensor, "b t d"]
    outputs: dict[int, Tensor]
    """``X_0`` the embedding, ``X_i`` the newest output of block ``i - 1``."""
    weights: Float[Tensor, "l *bt"] | None = None
    """Of the sum that the stream is; None elsewhere."""
    sources: tuple[int, ...] = ()
    """What each weight belongs to."""

    def added(self, y: Float[Tensor, "b t d"]) -> "DenseState":
        """``h + y``."""
        return DenseState(self.stream + y, self.outputs)

    def ended(self, number: int, y: Float[Tensor, "b t d"]) -> "DenseState":
        """Block ``number - 1`` ends with ``y``: its output is the stream and a source."""
        output = self.stream + y
        return DenseState(output, {**self.outputs, number: output})

    def summed(self, known: Sequence[int], weights: Float[Tensor, "l *bt"]) -> "DenseState":
        """The stream is ``Σ_j a_j X_j`` over the outputs of ``known`` that are there."""
        places = [place for place, number in enumerate(known) if number in self.outputs]
        sources = tuple(known[place] for place in places)
        weights = hold(weights)
        stream = weighted_sum(weights, places, [self.outputs[number] for number in sources])
        used = weights if len(places) == len(known) else weights[places]
        return DenseState(stream, self.outputs, used, sources)


def weighted_sum(
    weights: Float[Tensor, "l *bt"], places: Sequence[int], outputs: Sequence[Tensor]
) -> Float[Tensor, "b t d"]:
    """``Σ_j a_j X_j`` of the weights at ``places``: numbers, or one for each token."""
    terms = [
        weights[place].unsqueeze(-1) * output for place, output in zip(places, outputs, strict=True)
    ]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


class DenseConnection(Connection[DenseState], ABC):
    """``x = N(h)``; the output joins the stream."""

    def __init__(self, shape: Shape, backbone: Backbone) -> None:
        super().__init__()
        self.norm = RMSNorm(shape.width, backbone.norm_eps)

    def read(self, state: DenseState) -> tuple[Float[Tensor, "b t d"], DenseRoute]:
        route = DenseRoute(weights=state.weights, sources=state.sources)
        return self.norm(state.stream), route

    def mixed(self, state: DenseState, route: DenseRoute) -> Float[Tensor, "b t d"]:
        return state.stream


class InnerConnection(DenseConnection):
    """First site of a block: ``h ← h + y``."""

    def write(
        self, state: DenseState, y: Float[Tensor, "b t d"], route: DenseRoute, entry: Entry | None
    ) -> DenseState:
        return state.added(y)


class EndConnection(DenseConnection, ABC):
    """Last site of a block: ``X_i = h + y``, then ``h ← Σ_j a_j X_j`` over ``sources``.

    Weights go by the block that made a source. So in a program a source that this block's table
    does not know has weight 0, one that is missing contributes nothing, and the newest output of a
    repeated block stands for it.
    """

    def __init__(self, site: Site, shape: Shape, backbone: Backbone) -> None:
        super().__init__(shape, backbone)
        self.number = site.block + 1
        self.width = shape.width

    @property
    @abstractmethod
    def sources(self) -> range:
        """Numbers of the outputs that the sum knows, oldest first; empty for no sum."""

    @abstractmethod
    def weights(self, output: Float[Tensor, "b t d"]) -> Float[Tensor, "l *bt"]:
        """One weight for each of ``sources``, in float32 or better."""

    def write(
        self, state: DenseState, y: Float[Tensor, "b t d"], route: DenseRoute, entry: Entry | None
    ) -> DenseState:
        ended = state.ended(self.number, y)
        if not self.sources:
            return ended
        return ended.summed(self.sources, self.weights(ended.stream))

    def work(self, length: int) -> Work:
        """The sum."""
        return super().work(length) + Work(sums=2 * length * self.width * len(self.sources))


class DenseDesign(Design[DenseState], ABC):
    """Pre-norm blocks whose stream is a weighted sum over all outputs so far.

    The state grows by one tensor a block.
    """

    checkpoint_unit: ClassVar[Literal["block", "branch"]] = "branch"

    def connection(self, site: Site) -> DenseConnection:
        if site.attention:
            return InnerConnection(self.shape, self.backbone)
        return self.end(site)

    @abstractmethod
    def end(self, site: Site) -> EndConnection:
        """The connection of a block's last site."""

    def open(self, embedding: Float[Tensor, "b t d"], context: Context) -> DenseState:
        return DenseState(embedding, {0: embedding})

    def readout(self, state: DenseState) -> Float[Tensor, "b t d"]:
        return state.stream

    def depth_state(self, state: DenseState) -> Float[Tensor, "b t d"]:
        return state.stream

    def with_depth_state(self, state: DenseState, z: Float[Tensor, "b t d"]) -> DenseState:
        return DenseState(z, state.outputs)
