"""Merging by fading out: the others see a stream less and less, then not at all."""

from typing import ClassVar, final

from pydantic import Field
from torch import Tensor

from depthbench.nn.model import Model
from depthbench.probes.batch import Batch
from depthbench.streams.merge.plan import fewer_of, with_fewer
from depthbench.streams.merge.way import Merging, Way
from depthbench.streams.sites import Fading
from depthbench.streams.tune import Pupil, TuneConfig, changed_loss, lent


@final
class Fade(Way):
    """Streams are seen at 2/3, 1/3 and 0 of their size, in three stages of one training.

    30 % of the peak rate, 1500 steps. At 0 nothing reads them, so they are left out without loss.
    """

    name: ClassVar[str] = "fade"
    title: ClassVar[str] = "staged fade-out"
    definition: ClassVar[str] = (
        "the merged streams are seen at 2/3, 1/3 and 0 of their size while all parameters train "
        "on, then left out"
    )
    tune: TuneConfig | None = TuneConfig(steps=1500, rate=0.3, warmup=100)
    stages: tuple[float, ...] = Field(default=(2 / 3, 1 / 3, 0.0), min_length=1)
    """Share at which they are seen, in parts of the steps that are as long; the last must be 0."""

    def merge(self, merging: Merging) -> tuple[Model, list[float]]:
        assert self.tune is not None
        fewer = fewer_of(merging.alike, merging.into, dropped=True, exact=False)
        # refuses what cannot be merged before it trains
        merging.model.design.fewer(fewer.kept, fewer.exact)
        subject, model, steps = merging.bench.subject, merging.model, self.tune.steps
        gone = tuple(merging.into)
        changes = [Fading(gone, share, subject) for share in self.stages]

        def loss(batch: Batch, step: int) -> Tensor:
            change = changes[min(step * len(changes) // steps, len(changes) - 1)]
            return changed_loss(subject, change, batch)

        with lent(model):
            losses = self.train(merging, Pupil(model), loss)
            return with_fewer(model, fewer), losses
