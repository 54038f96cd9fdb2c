"""Parameter counts, from the model on the meta device."""

from depthbench.config import Frozen
from depthbench.designs import parse_design
from depthbench.nn.model import Model, ModelConfig


class Parameters(Frozen):
    """Counts of one model."""

    total: int
    backbone: int
    """Without embedding, head and what the design adds: the published `backbone`."""
    embedding_and_head: int
    own: int
    """What the design adds to (or, if negative, leaves out of) `prenorm`."""


def count_parameters(config: ModelConfig) -> Parameters:
    """Counts of ``config``; the design's own part is the difference to `prenorm`'s model."""
    total, ends = _count(config)
    plain, _ = _count(config.model_copy(update={"design": parse_design("prenorm")}))
    return Parameters(
        total=total, backbone=plain - ends, embedding_and_head=ends, own=total - plain
    )


def _count(config: ModelConfig) -> tuple[int, int]:
    model = Model.on_meta(config)
    ends = model.embed.weight.numel() + model.head.weight.numel()
    return sum(p.numel() for p in model.parameters()), ends
