"""Bytes of parameters, gradients and optimizer, whole and in parts."""

from depthbench.config import Frozen
from depthbench.nn.model import Model, ModelConfig

FLOAT32 = 4
MOMENTS = 2
"""That AdamW keeps of each parameter."""
SIZES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of a number."""


class Memory(Frozen):
    """Bytes that do not depend on the text; see `sharded`."""

    weights: int
    """To serve: parameters in the dtype that was asked for."""
    parameters: int
    """To train: in float32."""
    gradients: int
    optimizer: int
    """Moments of AdamW, in float32."""

    @property
    def training(self) -> int:
        """All three of training."""
        return self.parameters + self.gradients + self.optimizer

    def sharded(self, ways: int) -> int:
        """Bytes of training on each of ``ways`` devices that share all three (FSDP)."""
        return -(-self.training // ways)


def memory_of(config: ModelConfig, dtype: str) -> Memory:
    """Counted on the meta device; a matrix that serves twice counts once."""
    count = sum(one.numel() for one in Model.on_meta(config).parameters())
    return Memory(
        weights=count * SIZES[dtype],
        parameters=count * FLOAT32,
        gradients=count * FLOAT32,
        optimizer=MOMENTS * count * FLOAT32,
    )
