"""Computes something else when it is compiled."""

from typing import final

import torch
from tests.check.pieces import OneStream, PreNormed, config
from torch import Tensor


@final
class WhenCompiled(PreNormed):
    def written(self, state: Tensor, y: Tensor) -> Tensor:
        return state + (1.001 * y if torch.compiler.is_compiling() else y)


@final
class Otherwise(OneStream):
    Config = config("otherwise")
    card = OneStream.card
    At = WhenCompiled
