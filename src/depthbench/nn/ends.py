"""The two ends of a model: token embedding and head."""

from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from depthbench.nn.parameters import Parametrised, Start, normal_rows


@final
class Embedding(Parametrised):
    """Token embedding."""

    def __init__(self, vocab: int, width: int, std: float) -> None:
        super().__init__()
        self.std = std
        self.weight = nn.Parameter(torch.empty(vocab, width))

    def starts(self) -> dict[str, Start]:
        return {"weight": normal_rows([(self.weight.shape[0], self.std)], over_width=False)}

    def forward(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b t d"]:
        return nn.functional.embedding(tokens, self.weight)


@final
class Head(Parametrised):
    """Logits ``factor · W x``; the factor does for width what else the learning rate would."""

    def __init__(self, vocab: int, width: int, std: float, factor: float = 1.0) -> None:
        super().__init__()
        self.std = std
        self.factor = factor
        self.weight = nn.Parameter(torch.empty(vocab, width))

    def starts(self) -> dict[str, Start]:
        return {"weight": normal_rows([(self.weight.shape[0], self.std)], over_width=False)}

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t v"]:
        logits = nn.functional.linear(x, self.weight)
        return logits if self.factor == 1.0 else self.factor * logits
