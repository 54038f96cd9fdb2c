"""Chooses by a number of the state: no graph holds both ways."""

from typing import final

from tests.check.pieces import OneStream, PreNormed, config
from torch import Tensor


@final
class ByState(PreNormed):
    def written(self, state: Tensor, y: Tensor) -> Tensor:
        if state.sum() > 0:
            return state + y
        return state + 2 * y


@final
class Branching(OneStream):
    Config = config("branching")
    card = OneStream.card
    At = ByState
