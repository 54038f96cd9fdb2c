"""Goes through the tokens one by one: every length is a graph of its own."""

from typing import final

import torch
from tests.check.pieces import OneStream, PreNormed, config
from torch import Tensor


@final
class TokenByToken(PreNormed):
    def written(self, state: Tensor, y: Tensor) -> Tensor:
        return state + torch.stack([y[:, token] for token in range(y.shape[1])], dim=1)


@final
class Unrolled(OneStream):
    Config = config("unrolled")
    card = OneStream.card
    At = TokenByToken
