"""Counts its own calls: a graph is of one count."""

from typing import final

from tests.check.pieces import OneStream, PreNormed, config
from torch import Tensor

from depthbench.designs.base import Site
from depthbench.nn.branch import Backbone
from depthbench.shapes import Shape


@final
class ByCount(PreNormed):
    def __init__(self, site: Site, shape: Shape, backbone: Backbone) -> None:
        super().__init__(site, shape, backbone)
        self.calls = 0

    def written(self, state: Tensor, y: Tensor) -> Tensor:
        self.calls += 1
        return state + y if self.calls % 2 else state + 2 * y


@final
class Counting(OneStream):
    Config = config("counting")
    card = OneStream.card
    At = ByCount
