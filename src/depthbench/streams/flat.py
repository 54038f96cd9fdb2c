"""Whether a run's validation loss has stopped falling."""

from pathlib import Path

from depthbench.config import Frozen
from depthbench.train.metrics import METRICS
from depthbench.train.record import read_records


class Validation(Frozen):
    """The last validations of a run."""

    losses: tuple[float, ...]
    """Nats per token, oldest first."""
    wanted: int
    """Validations that must lie close together."""

    @property
    def change(self) -> float | None:
        """``max / min - 1`` over the last `wanted`; None where there are fewer."""
        last = self.losses[-self.wanted :]
        return max(last) / min(last) - 1 if len(last) == self.wanted else None


def validation_of(trial: Path | None, wanted: int) -> Validation | None:
    """From the trial's metrics; None where they are not known."""
    if trial is None:
        return None
    losses = [
        record["loss"]["nats_per_token"]
        for record in read_records(trial / METRICS)
        if record.get("loss") is not None
    ]
    return Validation(losses=tuple(losses), wanted=wanted) if losses else None
