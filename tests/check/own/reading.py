"""Reads a number out of a tensor, and multiplies by it."""

from typing import final

from tests.check.pieces import OneStream, PreNormed, config
from torch import Tensor


@final
class ByNumber(PreNormed):
    def written(self, state: Tensor, y: Tensor) -> Tensor:
        return state + y * float(state.detach().abs().max().item() > -1)


@final
class Reading(OneStream):
    Config = config("reading")
    card = OneStream.card
    At = ByNumber
