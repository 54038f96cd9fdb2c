"""Time of a pass on a device, kernel by kernel: the roofline, and why it is what it is."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from depthbench.config import Frozen
from depthbench.cost.devices import DeviceSpec
from depthbench.cost.passes import ATTENTION, FEEDFORWARD, HEAD, Pass
from depthbench.cost.record import Kernel
from depthbench.errors import DepthbenchError
from depthbench.shapes import Shape

Bound = Literal["launches", "products", "attention", "weights", "cache", "traffic", "link"]
"""What a kernel waits for: its launch, the matrix units, attention, reading parameters, reading
keys and values, other reading and writing, or another device."""

SPLIT_PARTS = (ATTENTION, FEEDFORWARD, HEAD)


class Split(Frozen):
    """One model over several devices.

    ``tensor`` cuts every matrix of a branch and the head; what the design keeps is on every device.
    Two sums over all devices a block. ``pipeline`` gives each device a run of blocks: a sequence
    passes them in turn, so alone it is not faster.
    """

    tensor: int = Field(default=1, ge=1)
    """Devices that share every matrix."""
    pipeline: int = Field(default=1, ge=1)
    """Devices that each hold a run of blocks."""

    @property
    def devices(self) -> int:
        """In all."""
        return self.tensor * self.pipeline

    def check(self, shape: Shape) -> None:
        """Raise `DepthbenchError` where a model has nothing for each device."""
        if shape.heads % self.tensor or shape.kv_heads % self.tensor:
            raise DepthbenchError(
                f"--tensor {self.tensor}: {shape.heads} heads and {shape.kv_heads} key/value heads "
                f"cannot be shared so. Use a divisor of {shape.kv_heads}"
            )
        if self.pipeline > shape.layers:
            raise DepthbenchError(
                f"--pipeline {self.pipeline}: the model has {shape.layers} blocks. Use at most as "
                "many devices"
            )


ALONE = Split()


class Times(Frozen):
    """Seconds of one pass, and what they are spent on."""

    seconds: float
    by_bound: dict[Bound, float]
    """Adds up to `seconds`."""
    by_part: dict[str, float]
    """Adds up to `seconds` too."""
    kernels: int
    fill: float
    """Share of the matrix units' time that is used, over all products by their FLOPs."""

    def share(self, bound: Bound) -> float:
        """Of the time."""
        return self.by_bound.get(bound, 0.0) / self.seconds


def predict(
    kernels: Sequence[Kernel], device: DeviceSpec, dtype: str, split: Split = ALONE
) -> Times:
    """Kernels one after another: ``max(launch, work)`` where the program goes on while the device
    works, else ``launch + work``. Work is ``max(FLOPs / rate, bytes / bandwidth)``, a launch the
    program's time for the operations since the kernel before.
    """
    device.check_dtype(dtype)
    by_bound: dict[Bound, float] = {}
    by_part: dict[str, float] = {}
    flops, filled = 0.0, 0.0
    call = _call(kernels, device)
    for kernel in kernels:
        ways = split.tensor if kernel.part in SPLIT_PARTS else 1
        fill = _fill(kernel, device, ways)
        bound, work = _work(kernel, device, dtype, ways, fill)
        if kernel.kind == "product":
            flops += kernel.flops
            filled += kernel.flops / fill
        launch = max(device.kernel, call * kernel.calls)
        seconds = max(launch, work) if device.overlaps else launch + work
        spent: dict[Bound, float] = {"launches": launch, bound: work}
        if device.overlaps:
            spent = {bound if work > launch else "launches": seconds}
        for name, part in spent.items():
            by_bound[name] = by_bound.get(name, 0.0) + part
        by_part[kernel.part] = by_part.get(kernel.part, 0.0) + seconds
    return Times(
        seconds=sum(by_bound.values()),
        by_bound=by_bound,
        by_part=by_part,
        kernels=len(kernels),
        fill=flops / filled if filled else 1.0,
    )


def of_pass(
    what: Pass, device: DeviceSpec, dtype: str, blocks: int, moved: int, split: Split = ALONE
) -> Times:
    """`predict`, and the messages between devices.

    ``moved`` are the bytes of one site's output; between runs of blocks the whole state travels.
    """
    alone = predict(what.kernels, device, dtype, split)
    if split.devices == 1:
        return alone
    if device.link is None:
        raise DepthbenchError(
            f"device '{device.name}' has no link to another: a model cannot be split over "
            f"{split.devices} of them. Leave --tensor and --pipeline out"
        )
    link = 0.0
    if split.tensor > 1:
        ring = 2 * (split.tensor - 1) / split.tensor
        link += 2 * blocks * (ring * moved / device.link + device.latency)
    link += (split.pipeline - 1) * (what.state / device.link + device.latency)
    return alone.model_copy(
        update={
            "seconds": alone.seconds + link,
            "by_bound": {**alone.by_bound, "link": link},
            "by_part": {**alone.by_part, "link": link},
        }
    )


def _call(kernels: Sequence[Kernel], device: DeviceSpec) -> float:
    """Seconds of the program for one operation of this pass."""
    calls = sum(one.calls for one in kernels)
    return device.call.at(sum(one.bytes for one in kernels) / max(calls, 1))


def _fill(kernel: Kernel, device: DeviceSpec, ways: int) -> float:
    size = kernel.size
    if kernel.kind != "product" or size is None:
        return 1.0
    columns = max(size.columns // ways, 1)
    return device.fill(size.count, size.rows, size.inner, columns)


def _work(
    kernel: Kernel, device: DeviceSpec, dtype: str, ways: int, fill: float
) -> tuple[Bound, float]:
    """What bounds a kernel, and its seconds without the launch."""
    flops, moved = kernel.flops / ways, kernel.bytes / ways
    reading = moved / device.bandwidth.at(moved) if moved else 0.0
    if kernel.kind == "attention":
        rate = device.attention.at(kernel.flops)
        if kernel.rows == 1 and device.cached is not None:
            return "cache", moved / device.cached.at(moved)
        return max([("attention", flops / rate), ("cache", reading)], key=lambda one: one[1])
    if kernel.kind == "product":
        matrix = kernel.weights / ways
        if kernel.size is not None and matrix:
            seconds = device.few_rows(dtype, kernel.size.rows, matrix)
            if seconds is not None:
                return "weights", seconds
        rate = device.products[dtype].at(kernel.flops) * fill
        memory: Bound = "weights" if kernel.weights else "traffic"
        return max([("products", flops / rate), (memory, reading)], key=lambda one: one[1])
    return "traffic", reading
