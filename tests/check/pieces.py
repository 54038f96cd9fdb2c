"""What broken designs are made of."""

from abc import ABC
from typing import Any, ClassVar

from pydantic import create_model
from torch import Tensor

from depthbench.designs.base import Card, DesignConfig, Route, Site, TensorConnection, TensorDesign
from depthbench.nn.branch import Backbone, Entry
from depthbench.nn.norm import RMSNorm
from depthbench.shapes import Shape


def config(name: str, **options: Any) -> type[DesignConfig]:
    """Options of a design called ``name``."""
    fields: dict[str, Any] = {"name": (str, name)} | {k: (type(v), v) for k, v in options.items()}
    return create_model("BrokenConfig", __base__=DesignConfig, **fields)


def card(own: str = "0") -> Card:
    """A card with this formula for own parameters."""
    return Card(
        family="baseline",
        sources="state",
        weights="fixed",
        own=own,
        equation="h ← h + y",
        paper="none",
    )


class PreNormed(TensorConnection, ABC):
    """``x = N(h)``; what is written is each design's mistake."""

    def __init__(self, site: Site, shape: Shape, backbone: Backbone) -> None:
        super().__init__()
        self.site, self.shape = site, shape
        self.norm = RMSNorm(shape.width, backbone.norm_eps)

    def read(self, state: Tensor) -> tuple[Tensor, Route]:
        return self.norm(state), Route()

    def write(self, state: Tensor, y: Tensor, route: Route, entry: Entry | None) -> Tensor:
        return self.written(state, y)

    def written(self, state: Tensor, y: Tensor) -> Tensor:
        """As `prenorm` does."""
        return state + y


class OneStream(TensorDesign, ABC):
    """Connections of the class that ``At`` names."""

    At: ClassVar[type[PreNormed]]
    card: ClassVar[Card] = card()

    def connection(self, site: Site) -> PreNormed:
        return self.At(site, self.shape, self.backbone)
