"""What training a trial costs on a device, as modelled."""

from depthbench.config import Frozen
from depthbench.cost.devices import DeviceSpec
from depthbench.cost.flops import known_flops
from depthbench.cost.ledger import PassCost, cost_of, dtype_of, stage_of
from depthbench.cost.memory import Memory, memory_of
from depthbench.cost.predict import Times, predict
from depthbench.nn.model import ModelConfig
from depthbench.train.config import TrialConfig

OPTIMIZER_PASSES = 7
"""Times that AdamW reads or writes a number of a parameter's size: parameter, gradient and two
moments are read, all but the gradient written."""


class StepCost(Frozen):
    """One training step, as modelled."""

    step: PassCost
    memory: Memory
    times: Times
    """Of forward and backward."""
    optimizer: float
    """Seconds of AdamW, which is all reading and writing."""

    @property
    def seconds(self) -> float:
        """Of the whole step."""
        return self.times.seconds + self.optimizer

    def bytes_on(self, ways: int) -> int:
        """On each of ``ways`` devices that share parameters, gradients and moments (FSDP).

        What a forward keeps, and the largest moment of it, is each device's own.
        """
        return self.memory.sharded(ways) + self.step.peak_bytes - self.memory.parameters


class TrainingCost(Frozen):
    """A whole trial."""

    flops: int
    seconds: float
    memory_bytes: int


def step_cost(
    model: ModelConfig,
    device: DeviceSpec,
    *,
    length: int,
    sequences: int,
    products: str,
    checkpointing: bool = False,
) -> StepCost:
    """Forward and backward kernel by kernel, and the optimizer."""
    device.check_dtype(products)
    stage = stage_of(model, "float32", device.kind == "cpu")
    watched = stage.train(sequences, length, dtype_of(products), checkpointing)
    memory = memory_of(model, "float32")
    moved = OPTIMIZER_PASSES * memory.parameters
    return StepCost(
        step=cost_of(watched),
        memory=memory,
        times=predict(watched.kernels, device, products),
        optimizer=moved / device.bandwidth.at(moved),
    )


def training_cost(trial: TrialConfig, device: DeviceSpec) -> TrainingCost:
    """FLOPs as the modules state them; seconds and bytes as modelled on ``device``."""
    train = trial.train
    products = products_on(device, train.dtype)
    micro = train.micro_sequences or train.sequences
    one = step_cost(
        trial.model,
        device,
        length=train.length,
        sequences=micro,
        products=products,
        checkpointing=train.checkpointing,
    )
    seconds = one.times.seconds * train.sequences / micro + one.optimizer
    return TrainingCost(
        flops=training_flops(trial, train.steps * train.sequences * train.length),
        seconds=train.steps * seconds,
        memory_bytes=one.bytes_on(1),
    )


def training_flops(trial: TrialConfig, tokens: int) -> int:
    """Forward and backward of ``tokens`` in sequences of the trial's length."""
    length = trial.train.length
    return known_flops(trial.model, length).training_step * tokens // length


def products_on(device: DeviceSpec, dtype: str) -> str:
    """What ``auto`` means on ``device``: bfloat16 where it is the faster of the two."""
    if dtype != "auto":
        return dtype
    rates = {name: device.products[name].best for name in device.products}
    return "bfloat16" if rates.get("bfloat16", 0) > rates["float32"] else "float32"
