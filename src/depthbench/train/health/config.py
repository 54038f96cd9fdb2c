"""What is watched while a model trains, how often, and from where on it is worth a word."""

from typing import Self

from pydantic import Field, model_validator

from depthbench.config import Frozen


class HealthConfig(Frozen):
    """How often to look, and the threshold of every finding.

    Thresholds without a source are wide of what healthy runs showed here (docs/health.md).
    """

    every: int = Field(default=20, ge=0)
    """Steps between two measurements by depth; 0 = only at validations, which always measure."""
    update_every: int = Field(default=5, ge=1)
    """Steps between two looks at update sizes. Adam averages gradients over ``1/(1 - β1)`` = 10
    steps, so a jump lasts longer than this."""
    sequences: int = Field(default=2, ge=1)
    """Validation sequences whose states are watched: enough for a mean, too few to cost time."""

    window: int = Field(default=100, ge=10)
    """Values that a new one is held against."""
    window_least: int = Field(default=20, ge=5)
    """Values that must be there before anything is called a spike."""
    spike_z: float = Field(default=7.0, gt=0)
    """Robust z-score of a spike; seven deviations, as in the spike score of OLMo 2 (arXiv
    2501.00656), here from median and MAD, which the spikes themselves do not move."""
    loss_floor: float = Field(default=0.01, gt=0)
    """Least scale of the loss's logarithm: a rise under ``spike_z`` times this, 7 %, is no spike
    however quiet the window was."""
    norm_floor: float = Field(default=0.1, gt=0)
    """The same for gradient norms and update sizes: they must double. Those of single batches
    reached 1.9 times the usual in runs whose loss showed nothing."""

    slope_steps: int = Field(default=200, ge=4)
    """Steps over which the loss's first slope is fitted."""
    slope_least: float = Field(default=0.05, ge=0)
    """Nats per token by which the loss should fall in 100 of them; noise of batches is less."""

    stable_steps: int = Field(default=200, ge=1)
    """A trial that lasts so long and then diverges would have passed a short test."""
    stable_rise: float = Field(default=0.1, gt=0)
    """Share above the least loss so far within which the loss counts as stable: batches differ."""
    lost_share: float = Field(default=0.2, gt=0, lt=1)
    """Share of what was learned whose loss for good is worth a word."""

    lasting: int = Field(default=3, ge=1)
    """Measurements in a row that must agree before a state by depth is a finding."""
    gradient_ratio: float = Field(default=100.0, gt=1)
    """Gradient of the bottom block over the top one's, or its inverse. At the start of 256 blocks
    it is 11 for `prenorm` and 29 for `attnres` (init cards)."""
    second_moment_floor: float = Field(default=1e-5, gt=0, lt=1)
    """Adam's second moment over the largest of any block: a gradient 300 times smaller."""
    update_ratio_low: float = Field(default=1e-5, gt=0)
    """Update over weight. The rule of thumb is about 1e-3 (CS231n); a hundredth of it stands
    still."""
    update_ratio_high: float = Field(default=0.1, gt=0)
    """A hundred times the rule of thumb: a tenth of the weight in one step."""
    similarity_rise: float = Field(default=0.1, gt=0, le=2)
    """Rise of the cosine between shallow and deep states over training: deep blocks add less and
    less."""
    similarity_high: float = Field(default=0.8, gt=-1, lt=1)
    """Below this cosine a rise is no finding: states still turn far."""
    state_growth: float = Field(default=1000.0, gt=1)
    """Root mean square of the last depth state over the embedding's, or its inverse. Healthy runs
    of `prenorm` had 20 to 40 here; at a learning rate 30 times too high it was 30 000."""
    mixing_error: float = Field(default=0.05, gt=0)
    """Error of a row or column sum: it multiplies over sites, 1.05 to the power 48 is 10."""
    low_precision_drift: float = Field(default=0.1, gt=0)
    """Distance of a depth state in training's precision from float32's, over its norm. bfloat16
    rounds by up to 2^-8 = 0.004 each time."""
    expert_dead: float = Field(default=0.1, gt=0, lt=1)
    """Share of an expert over the even share."""
    expert_number: float = Field(default=0.5, gt=0, lt=1)
    """Effective number of experts, ``exp`` of their shares' entropy, over their number."""

    @model_validator(mode="after")
    def _window_fills(self) -> Self:
        if self.window_least > self.window:
            raise ValueError(
                f"window_least = {self.window_least} is more than window = {self.window}: no spike "
                "could ever be called. Make it no larger than window"
            )
        return self
