"""What connections of several mixed streams share: reading, mixing and writing."""

from abc import ABC, abstractmethod

from jaxtyping import Float
from torch import Tensor

from depthbench.designs.base import Connection, Entry
from depthbench.designs.fast_streams import mix_and_write, read_streams
from depthbench.designs.streams import StreamRoute
from depthbench.nn.branch import Backbone
from depthbench.nn.norm import RMSNorm
from depthbench.nn.precision import full_precision
from depthbench.nn.work import Work
from depthbench.shapes import Shape


class StreamConnection(Connection[Tensor], ABC):
    """``x = N(Σ_i α_i H_i)``, new ``H_j = Σ_i A[i, j] H_i + β_j y``; `route` says the rest."""

    def __init__(self, streams: int, shape: Shape, backbone: Backbone) -> None:
        super().__init__()
        self.streams = streams
        self.width = shape.width
        self.norm = RMSNorm(shape.width, backbone.norm_eps)

    @abstractmethod
    def route(self, streams: Float[Tensor, "b t s d"]) -> StreamRoute:
        """``α``, ``A`` and ``β`` for these streams, in float32 or better."""

    def read(self, state: Float[Tensor, "b t s d"]) -> tuple[Float[Tensor, "b t d"], StreamRoute]:
        route = self.route(state)
        assert route.read is not None
        return self.norm(read_streams(state, route.read, self.kernels)), route

    def input_norm(self) -> RMSNorm:
        return self.norm

    def mixed(self, state: Float[Tensor, "b t s d"], route: StreamRoute) -> Float[Tensor, "b t d"]:
        assert route.read is not None
        return read_streams(state, route.read, self.kernels)

    def write(
        self,
        state: Float[Tensor, "b t s d"],
        y: Float[Tensor, "b t d"],
        route: StreamRoute,
        entry: Entry | None,
    ) -> Float[Tensor, "b t s d"]:
        assert route.write is not None
        with full_precision(state):
            return mix_and_write(state, route.mix, y, route.write, self.kernels)

    def joining_work(self, length: int, *, mixed: bool = True) -> Work:
        """Of reading, of mixing unless there is no ``A``, and of writing."""
        entries = length * self.streams * self.width
        return Work(products=2 * self.streams * entries * mixed, sums=2 * 2 * entries)
