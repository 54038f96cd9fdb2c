"""Parameter counts, from the model on the meta device."""

from typing import Any

from pydantic import model_validator
from torch import nn

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
    active: int
    """What one token uses: all, but for the experts that its routers do not choose."""

    @model_validator(mode="before")
    @classmethod
    def _all_active(cls, data: Any) -> Any:
        """Counts written before there were routers name no active ones."""
        if isinstance(data, dict) and "total" in data:
            return {"active": data["total"], **data}
        return data


def count_parameters(config: ModelConfig) -> Parameters:
    """Counts of ``config``; the design's own part is the difference to `prenorm`'s model."""
    model = Model.on_meta(config)
    total, ends = _total(model), ends_of(model)
    plain = _total(Model.on_meta(config.model_copy(update={"design": parse_design("prenorm")})))
    idle = sum(_total(branch) - branch.active() for _, branch, _ in model.sites())
    return Parameters(
        total=total,
        backbone=plain - ends,
        embedding_and_head=ends,
        own=total - plain,
        active=total - idle,
    )


def ends_of(model: Model) -> int:
    """Parameters of embedding and head; a matrix that serves as both counts once."""
    return _total(model.embed) + _total(model.head)


def _total(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
