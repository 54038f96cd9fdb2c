"""How start, outputs and learning rates follow depth and width, so that a good rate transfers."""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field, model_validator

from depthbench.config import Frozen
from depthbench.errors import DepthbenchError
from depthbench.nn.parameters import Start
from depthbench.shapes import Shape

ALPHAS = {"standard": 0.0, "depth_mup": 0.5, "completep": 1.0}


@dataclass(frozen=True)
class Scaling:
    """The factors of one shape; all are 1 for `standard` and at the base shape.

    ``m_L`` and ``m_d`` are layers and width over the base's.
    """

    layers: float
    """``m_L``."""
    width: float
    """``m_d``; 1 where only depth is scaled."""
    alpha: float

    @property
    def branch(self) -> float:
        """On branch outputs: ``m_L^-α``."""
        return self.layers**-self.alpha

    @property
    def head(self) -> float:
        """On the logits: ``1 / m_d``."""
        return 1 / self.width

    @property
    def std(self) -> float:
        """On the start of matrices inside the blocks: ``m_d^-1/2``."""
        return self.width**-0.5

    def rate(self, start: Start, *, in_block: bool) -> float:
        """On the learning rate: ``m_L^(α-1)`` in the blocks, and ``1 / m_d`` for `over_width`.

        ``1 / m_L`` in the blocks for what is `carried`: no branch factor makes its changes small.
        """
        wide = self.width if start.over_width else 1.0
        if not in_block:
            return 1 / wide
        return self.layers ** ((0.0 if start.carried else self.alpha) - 1) / wide

    def decay(self, start: Start) -> float:
        """On weight decay: ``m_d`` for `over_width`, against the learning rate's ``1 / m_d``."""
        return self.width if start.over_width else 1.0

    def eps(self, start: Start, *, in_block: bool) -> float:
        """On AdamW's eps, as gradients shrink: ``1 / m_d``, and ``m_L^-α`` behind a factor."""
        behind = in_block and not start.carried
        return (self.branch if behind else 1.0) / self.width


UNSCALED = Scaling(layers=1.0, width=1.0, alpha=1.0)


class Parametrization(Frozen):
    """Standard, depth-µP (arXiv 2310.02244) or CompleteP (arXiv 2505.01618), relative to a base.

    Width follows µP (arXiv 2203.03466). The defaults of the base are those of the published code.
    """

    kind: Literal["standard", "depth_mup", "completep"] = "standard"
    """Which rules: docs/parametrizations.md."""
    scope: Literal["depth", "depth_width"] = "depth_width"
    """Whether the rules act over depth alone, or over width too."""
    base_layers: int = Field(default=2, ge=1)
    """At this depth nothing changes."""
    base_width: int = Field(default=256, ge=1)
    """At this width nothing changes."""
    base_head_dim: int = Field(default=64, ge=1)
    """Width of a head, at every width: attention divides by its root, so heads grow in number."""
    alpha: float | None = Field(default=None, ge=0, le=1)
    """Exponent of depth; None = that of the kind: 1/2 for depth-µP, 1 for CompleteP."""

    @model_validator(mode="after")
    def _standard_has_no_base(self) -> "Parametrization":
        changed = list(self.model_dump(exclude_defaults=True))
        if self.kind == "standard" and changed:
            raise ValueError(
                f'kind = "standard" scales nothing, so {changed[0]} has no effect. '
                'Leave it out, or set kind = "completep" or "depth_mup"'
            )
        return self

    def at(self, shape: Shape) -> Scaling:
        """The factors for ``shape``.

        Raises `DepthbenchError` where width is scaled and heads grow wider: that asks for another
        scale inside attention.
        """
        if self.kind == "standard":
            return UNSCALED
        alpha = ALPHAS[self.kind] if self.alpha is None else self.alpha
        layers = shape.layers / self.base_layers
        if self.scope == "depth":
            return Scaling(layers, 1.0, alpha)
        if shape.head_dim != self.base_head_dim:
            raise DepthbenchError(
                f"parametrization.base_head_dim = {self.base_head_dim}, but the heads of width "
                f"{shape.width} are {shape.head_dim} wide. Let the number of heads grow with the "
                f'width, and set base_head_dim to their width; or scope = "depth"'
            )
        return Scaling(layers, shape.width / self.base_width, alpha)
