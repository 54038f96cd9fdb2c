"""The two ends of a model: token embedding and head."""

from abc import ABC, abstractmethod
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from depthbench.nn.parameters import Parametrised, Start, normal_rows
from depthbench.nn.work import Work


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


class Head(Parametrised, ABC):
    """Logits ``factor · W x``; the factor does for width what else the learning rate would."""

    def __init__(self, vocab: int, width: int, factor: float) -> None:
        super().__init__()
        self.vocab, self.width, self.factor = vocab, width, factor

    @abstractmethod
    def matrix(self, embedding: Float[Tensor, "v d"]) -> Float[Tensor, "v d"]:
        """``W``, where the model's embedding is ``embedding``."""

    def forward(
        self, x: Float[Tensor, "*axes d"], embedding: Float[Tensor, "v d"]
    ) -> Float[Tensor, "*axes v"]:
        logits = nn.functional.linear(x, self.matrix(embedding))
        return logits if self.factor == 1.0 else self.factor * logits

    def work(self, length: int) -> Work:
        """Operations of the logits of ``length`` positions; a tied matrix costs the same."""
        return Work(products=2 * length * self.vocab * self.width)


@final
class OwnHead(Head):
    """With a matrix of its own."""

    def __init__(self, vocab: int, width: int, std: float, factor: float) -> None:
        super().__init__(vocab, width, factor)
        self.std = std
        self.weight = nn.Parameter(torch.empty(vocab, width))

    def starts(self) -> dict[str, Start]:
        return {"weight": normal_rows([(self.weight.shape[0], self.std)], over_width=False)}

    def matrix(self, embedding: Float[Tensor, "v d"]) -> Float[Tensor, "v d"]:
        return self.weight


@final
class TiedHead(Head):
    """The embedding's matrix serves again.

    It is handed over at every call, so there is one parameter: nothing can untie it, and it is
    counted, saved and sharded once.
    """

    def starts(self) -> dict[str, Start]:
        return {}

    def matrix(self, embedding: Float[Tensor, "v d"]) -> Float[Tensor, "v d"]:
        return embedding
