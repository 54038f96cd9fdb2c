"""The training recipe of a study, and one trial's whole config."""

import math
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from depthbench.config import Frozen, Seed
from depthbench.designs import design_class
from depthbench.designs.base import DesignConfig
from depthbench.marks import NO_MARKS, Marks
from depthbench.nn.model import ModelConfig
from depthbench.train.health.config import HealthConfig


class TrainConfig(Frozen):
    """AdamW with linear warm-up and cosine decay, the published recipe scaled to small runs."""

    tokens: int = Field(default=1_000_000, ge=1, le=10**15)
    """Training tokens; the last step is a whole batch."""
    sequences: int = Field(default=16, ge=1)
    """Sequences in a batch."""
    length: int = Field(default=128, ge=2)
    """Tokens in a sequence."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """AdamW's, of the first moment."""
    beta2: float = Field(default=0.95, ge=0, lt=1)
    """AdamW's, of the second moment."""
    eps: float = Field(default=1e-8, gt=0)
    """AdamW's, beside the root of the second moment."""
    weight_decay: float = Field(default=0.1, ge=0)
    """On matrices and embeddings; not on norms, biases, coefficients and queries."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Gradients are clipped to this norm, all parameters together."""
    warmup_fraction: float = Field(default=0.1, ge=0, le=1)
    """Share of the steps over which the rate rises to its peak."""
    final_fraction: float = Field(default=0.1, ge=0, le=1)
    """Learning rate at the end over the peak."""
    evaluations: int = Field(default=4, ge=1)
    """Validations, evenly spread; the last is at the end."""
    validation_tokens: int = Field(default=32768, ge=1)
    """Fixed validation tokens of each domain."""
    log_every: int = Field(default=10, ge=1)
    """Steps between two metric records."""
    divergence_patience: int = Field(default=50, ge=1)
    """Steps in a row, after warm-up, with a loss above the start: then it has diverged."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of matrix products, through autocast; weights stay float32."""
    device: str = "cpu"
    """``cpu``, ``cuda`` or ``auto``."""
    document_mask: bool = False
    """A token attends to its own document alone, where positions start at 0; state-space branches
    restart too. Validation as well."""
    checkpointing: bool = False
    """Recompute activations in the backward pass instead of keeping them."""
    compile: bool = False
    """Compile blocks with `torch.compile`, or only branches where a state grows with depth. It
    pays for long runs: it takes up to minutes before the first step."""
    kernels: Literal["plain", "fused"] = "plain"
    """``fused``: on a GPU, the kernels of liger-kernel and flash-linear-attention that compute the
    same; the result says which. ``plain``: torch's own operations."""
    loss_chunk: int | None = Field(default=None, ge=1)
    """Tokens whose logits are formed at a time, which saves memory; None = all, where they take
    less than half a gigabyte."""
    save_model: bool = True
    """Keep the trained weights of every trial, for probes."""
    save_every: int = Field(default=500, ge=0)
    """Steps between two checkpoints that training can go on from; 0 = none before the end."""
    keep_last: int = Field(default=2, ge=1)
    """Checkpoints that are kept, newest first."""
    keep_best: bool = False
    """Keep the checkpoint of the least validation loss as well."""
    micro_sequences: int | None = Field(default=None, ge=1)
    """Sequences of one forward; the gradients of a batch are summed over its parts. None = all."""
    health: HealthConfig = HealthConfig()
    """What is watched by depth."""

    @property
    def steps(self) -> int:
        """Optimizer steps that make at least ``tokens``."""
        return math.ceil(self.tokens / (self.sequences * self.length))

    @property
    def warmup_steps(self) -> int:
        """Steps of the linear warm-up."""
        # 0.07 * 100 is a little more than 7
        return math.ceil(round(self.warmup_fraction * self.steps, 9))

    @model_validator(mode="after")
    def _enough_steps(self) -> Self:
        if self.evaluations > self.steps:
            raise ValueError(
                f"evaluations = {self.evaluations} is more than the steps ({self.steps}) that "
                f"{self.tokens} tokens give. Use fewer evaluations or more tokens"
            )
        return self

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.micro_sequences is not None and self.sequences % self.micro_sequences:
            raise ValueError(
                f"sequences = {self.sequences} is not divisible by micro_sequences = "
                f"{self.micro_sequences}. Use a divisor of {self.sequences}"
            )
        return self

    def learning_rate(self, step: int, peak: float) -> float:
        """Rate of ``step`` (from 0): linear up to ``peak``, then cosine to its final fraction."""
        if step < self.warmup_steps:
            return peak * (step + 1) / self.warmup_steps
        done = (step - self.warmup_steps) / max(1, self.steps - 1 - self.warmup_steps)
        low = self.final_fraction
        return peak * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * min(1.0, done))))

    def evaluation_steps(self) -> frozenset[int]:
        """Numbers of finished steps after which to validate."""
        return frozenset(
            round(self.steps * part / self.evaluations) for part in range(1, self.evaluations + 1)
        )


class TrialConfig(Frozen):
    """Everything that fixes a trial's result; its digest is the trial's id."""

    model: ModelConfig
    """Shape, design, backbone."""
    train: TrainConfig
    """Recipe."""
    data_hash: str
    """Of the prepared data."""
    learning_rate: float = Field(gt=0)
    """Peak."""
    seed: Seed
    """Of weights and data order."""
    later: ClassVar[frozenset[str]] = frozenset({"weights"})
    weights: str | None = None
    """Digest of the weights that training begins with; None = they are drawn from ``seed``."""

    @property
    def id(self) -> str:
        """Digest of the resolved config."""
        return self.digest()


def told(train: TrainConfig, design: DesignConfig, marks: Marks) -> Marks:
    """The tokenizer's marks where training or the design reads them; a model keeps no others."""
    reads = train.document_mask or design_class(design.name).reads_marks
    return marks if reads else NO_MARKS
