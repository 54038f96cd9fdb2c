"""The processes that train one model together: what they share, and who says what."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, final

import torch
from safetensors.torch import save_file
from torch import Tensor

from depthbench.errors import DepthbenchError
from depthbench.nn.model import Model, ModelConfig

if TYPE_CHECKING:
    from depthbench.train.checkpoint import Checkpoint

T = TypeVar("T")
SUFFIX = ".safetensors"


class Team(ABC):
    """Processes that hold one model and learn from parts of every batch.

    Each takes its own sequences of a batch, all of equal number; losses and gradients are means
    over all of them, so a team computes what one process does, up to the order of sums.
    """

    rank: int = 0
    size: int = 1

    @property
    def main(self) -> bool:
        """Whether this process writes files and speaks for the others."""
        return self.rank == 0

    def notes(self) -> list[str]:
        """What a result says of the team."""
        return []

    def rows(self, sequences: int, part: int) -> list[int]:
        """Rows of a batch that this process takes: its share of every ``part`` sequences.

        Raises `DepthbenchError` unless all processes get as many.
        """
        share, left = divmod(part, self.size)
        if left:
            raise DepthbenchError(
                f"{part} sequences cannot be shared by {self.size} processes. Use a multiple of "
                f"{self.size} for train.sequences and train.micro_sequences"
            )
        start = self.rank * share
        return [k + i for k in range(0, sequences, part) for i in range(start, start + share)]

    @abstractmethod
    def build(self, config: ModelConfig, seed: int, device: torch.device) -> Model:
        """The model with this process's part of its parameters."""

    @abstractmethod
    def forward_of(self, model: Model) -> Callable[..., Tensor]:
        """What to call for logits whose gradients are wanted."""

    def adding_up(self, model: Model, last: bool) -> AbstractContextManager[object]:
        """Around the forward and backward of one part of a batch; the ``last`` exchanges."""
        return nullcontext()

    def exchange_rest(self, model: Model) -> None:
        """Gradients that the backward pass left to each process, made the same in all."""
        return

    def totals(self, numbers: Sequence[float]) -> list[float]:
        """Each number summed over all processes, in float64."""
        return list(numbers)

    def told(self, value: T) -> T:
        """What the main process has for ``value``, in all; waits for it."""
        return value

    def gathered(self, value: T) -> list[T]:
        """Every process's ``value``, in all."""
        return [value]

    def write(self, folder: Path, tensors: dict[str, dict[str, Tensor]]) -> None:
        """Write named sets of tensors below ``folder``, each process its part."""
        if not self.main:
            return
        for name, own in tensors.items():
            whole = {key: tensor.detach().cpu().contiguous() for key, tensor in own.items()}
            save_file(whole, folder / f"{name}{SUFFIX}")

    def read(
        self, found: "Checkpoint", name: str, like: Callable[[str], Tensor | None]
    ) -> dict[str, Tensor]:
        """A set of tensors of a checkpoint, this process's part of each.

        They are laid out as ``like(key)``, where that is a tensor.
        """
        return found.tensors(name)

    def place(self, like: Tensor, whole: Tensor) -> Tensor:
        """This process's part of ``whole``, laid out as ``like``."""
        return whole.to(like.device)


@final
class Solo(Team):
    """One process alone."""

    def build(self, config: ModelConfig, seed: int, device: torch.device) -> Model:
        return Model.build(config, seed, device)

    def forward_of(self, model: Model) -> Callable[..., Any]:
        return model
