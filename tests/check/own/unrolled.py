"""Goes through the tokens one by one: every length is a graph of its own."""

from typing import final

import torch
from torch import Tensor

from tests.check.broken import OneStream, PreNormed, config


@final
class TokenByToken(PreNormed):
    def written(self, state: Tensor, y: Tensor) -> Tensor:
        return state + torch.stack([y[:, token] for token in range(y.shape[1])], dim=1)


@final
class Unrolled(OneStream):
    Config = config("unrolled")
    card = OneStream.card
    At = TokenByToken
