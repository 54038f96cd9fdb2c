"""What serving a model costs on a device, as modelled."""

import functools

from depthbench.config import Frozen
from depthbench.cost.devices import DeviceSpec
from depthbench.cost.ledger import Ledger, ledger_from, stage_of
from depthbench.cost.memory import SIZES
from depthbench.cost.passes import Pass
from depthbench.cost.predict import ALONE, Split, Times, of_pass
from depthbench.errors import DepthbenchError
from depthbench.nn.model import ModelConfig

MOST_CONTEXT, MOST_BATCH, MOST_TOKENS = 2**23, 2**20, 2**30
"""Beyond which sizes of tensors are no 64-bit numbers any more."""


class Served(Frozen):
    """The ledger, and its time on a device."""

    ledger: Ledger
    device: str
    split: Split
    prefill: Times
    decode: Times
    step: float
    """Seconds of a step of decoding beside its kernels."""

    @property
    def ttft(self) -> float:
        """Seconds from the prompt to the first token."""
        return self.prefill.seconds + self.step

    @property
    def tpot(self) -> float:
        """Seconds from one token to the next; every sequence of the batch gets one."""
        return self.decode.seconds + self.step

    @property
    def tokens_per_second(self) -> float:
        """Of decoding, over the batch."""
        return self.ledger.batch / self.tpot

    @property
    def memory(self) -> int:
        """Bytes on one device at the fullest moment: of prefill, or of decoding.

        A tensor split shares parameters and cache; what is in flight, and the state, is on each.
        """
        whole = max(self.ledger.prefill.peak_bytes, self.ledger.decode.peak_bytes)
        shared = self.ledger.memory.weights + self.ledger.cache.total
        return whole - shared + -(-shared // self.split.devices)


def check_sizes(context: int, batch: int) -> None:
    """Raise `DepthbenchError` for more than any run holds, or nothing."""
    for name, size, most in (("context", context, MOST_CONTEXT), ("batch", batch, MOST_BATCH)):
        if not 1 <= size <= most:
            raise DepthbenchError(
                f"{name} = {size:,}: from 1 to {most:,} are allowed. Ask for less"
            )
    if context * batch > MOST_TOKENS:
        raise DepthbenchError(
            f"batch = {batch:,} sequences of context = {context:,} are {context * batch:,} tokens: "
            f"at most {MOST_TOKENS:,} are allowed. Ask for less of one of the two"
        )


class Serving(Frozen):
    """The figures that limits are set on."""

    kv_bytes: int
    state_bytes: int
    memory_bytes: int
    ttft_seconds: float
    tpot_seconds: float


def served(
    model: ModelConfig,
    device: DeviceSpec,
    *,
    context: int,
    batch: int = 1,
    dtype: str = "float32",
    split: Split = ALONE,
) -> Served:
    """Kernels of the versions that run on such a device, and their time on it.

    Raises `DepthbenchError` for a dtype that nothing is known of there.
    """
    device.check_dtype(dtype)
    check_sizes(context, batch)
    split.check(model.shape)
    ledger, prefill, decode = _watched(
        model.model_dump_json(), dtype, device.kind == "cpu", context, batch
    )
    shape = model.shape
    one = batch * shape.width * SIZES[dtype]
    return Served(
        ledger=ledger,
        device=device.name,
        split=split,
        prefill=of_pass(prefill, device, dtype, shape.layers, one * context, split),
        decode=of_pass(decode, device, dtype, shape.layers, one, split),
        step=device.step,
    )


@functools.lru_cache(maxsize=32)
def _watched(
    told: str, dtype: str, fast: bool, context: int, batch: int
) -> tuple[Ledger, Pass, Pass]:
    """Kept, because several devices, splits and limits are often asked about one model."""
    model = ModelConfig.model_validate_json(told)
    return ledger_from(model, stage_of(model, dtype, fast), context, batch, dtype)


def serving(
    model: ModelConfig, device: DeviceSpec, *, context: int, batch: int, dtype: str
) -> Serving:
    """`served`, in the figures that limits are set on."""
    found = served(model, device, context=context, batch=batch, dtype=dtype)
    return Serving(
        kv_bytes=found.ledger.cache.total,
        state_bytes=found.ledger.prefill.state_bytes,
        memory_bytes=found.memory,
        ttft_seconds=found.ttft,
        tpot_seconds=found.tpot,
    )
