"""What a way of merging streams is."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from depthbench.config import Frozen
from depthbench.nn.model import Model
from depthbench.probes.batch import Batch
from depthbench.streams.merge.plan import Alike
from depthbench.streams.retrain import Bench
from depthbench.streams.tune import Hear, Pupil, TuneConfig, everything, tune


@dataclass(frozen=True)
class Merging:
    """A merge that is to be made."""

    bench: Bench
    alike: Alike
    into: Mapping[int, int]
    """Streams that go, and where to."""
    folder: Path
    """Of what a killed merge goes on from."""
    key: str
    hear: Hear = lambda step, loss: None
    say: Callable[[str], None] = lambda _: None
    """Hears what a killed merge cannot go on from."""

    @property
    def model(self) -> Model:
        """As it was."""
        return self.bench.subject.model


class Way(Frozen, ABC):
    """A way to merge streams; one file each, and one line in the registry."""

    name: ClassVar[str]
    title: ClassVar[str]
    definition: ClassVar[str]
    tune: TuneConfig | None = None
    """Training that belongs to it."""
    seed: int = 0
    """Of the batches that it trains on."""

    def train(
        self,
        merging: Merging,
        pupil: Pupil,
        loss: Callable[[Batch, int], Tensor],
        trained: Callable[[int, str], bool] = everything,
    ) -> list[float]:
        """`tune` as this way wants it, so that a killed merge goes on."""
        assert self.tune is not None
        return tune(
            pupil,
            merging.bench.course,
            self.tune,
            loss,
            seed=self.seed,
            key=merging.key,
            folder=merging.folder,
            trained=trained,
            hear=merging.hear,
            say=merging.say,
        )

    @abstractmethod
    def merge(self, merging: Merging) -> tuple[Model, list[float]]:
        """A model with fewer streams, and the loss of each step of training.

        Raises `DepthbenchError` where these streams cannot be merged so.
        """
