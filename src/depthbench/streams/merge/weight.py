"""Merging by a learned weight: the mean of the streams, whose weights are trained on."""

from typing import ClassVar, final

from torch import Tensor

from depthbench.nn.model import Model
from depthbench.probes.batch import Batch
from depthbench.probes.loss import own_loss
from depthbench.probes.own import OwnSession
from depthbench.streams.merge.plan import fewer_of, with_fewer
from depthbench.streams.merge.way import Merging, Way
from depthbench.streams.tune import Pupil, TuneConfig


@final
class Weight(Way):
    """``H' = Σ_j c_j H_j`` with learned ``c``, from the mean; 20 % of the peak rate, 400 steps.

    What each old stream is of the new one (``E``) starts as least squares say, and is learned too.
    Where a stream cannot be a mean of others, as in `cascade`, the kept one goes on as it is.
    """

    name: ClassVar[str] = "weight"
    title: ClassVar[str] = "learned weight"
    definition: ClassVar[str] = (
        "streams become their mean with learned weights; all parameters train on"
    )
    tune: TuneConfig | None = TuneConfig(steps=400, rate=0.2, warmup=40)

    def merge(self, merging: Merging) -> tuple[Model, list[float]]:
        means = merging.model.design.averages_streams
        fewer = fewer_of(merging.alike, merging.into, means=means, exact=False)
        model = with_fewer(merging.model, fewer)

        def loss(batch: Batch, step: int) -> Tensor:
            return own_loss(OwnSession(model, batch))

        return model, self.train(merging, Pupil(model), loss)
