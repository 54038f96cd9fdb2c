"""What this machine can do, measured in models of its own: half a minute.

Products and attention are timed where they stand, between the other operations of a model: alone
in a loop they would find their operands and code in caches that a model does not leave them in.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from depthbench.config import Frozen
from depthbench.cost.devices import Curve, DeviceSpec, Point, Skinny, constant
from depthbench.cost.passes import Stage
from depthbench.cost.predict import predict
from depthbench.machine import choose_device, describe, memory_bytes
from depthbench.nn.model import Model, ModelConfig
from depthbench.shapes import Shape

HEAD = 64
PRODUCTS = ("mm", "addmm", "bmm")
ATTENTION = "_scaled_dot_product"
"""How the names of fused attention begin."""
LEAST = 1e-7
"""Seconds: no call takes less."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Plan(Frozen):
    """What is timed."""

    widths: tuple[int, ...] = (64, 256, 768)
    """Of models, from one that stays in a cache to one that does not."""
    bare: tuple[int, ...] = (16, 64, 256)
    """Of models that the program's own time is told from."""
    layers: int = 6
    """Blocks of the models that are timed."""
    rows: tuple[int, ...] = (1, 4, 16, 64)
    """Sequences of which each gets one token."""
    lengths: tuple[int, ...] = (128, 512, 1536)
    """Tokens of a prompt."""
    context: int = 512
    """Behind which a token is decoded."""
    sums: tuple[int, ...] = (2**12, 2**15, 2**18, 2**20, 2**22, 2**24)
    """Numbers that are added to as many others."""
    rounds: int = 5
    """Of every measurement; the median counts."""


PLAN = Plan()


@dataclass
class Timed:
    """Sizes and seconds of one kind of operation."""

    seconds: dict[float, list[float]]

    def add(self, size: float, seconds: float) -> None:
        """One measurement; those of one size are averaged."""
        self.seconds.setdefault(size, []).append(seconds)

    def rates(self) -> Curve:
        """Size over seconds."""
        points: list[Point] = [
            (size, size * len(found) / sum(found)) for size, found in sorted(self.seconds.items())
        ]
        return Curve(points=tuple(points))


@dataclass(frozen=True)
class Event:
    """One operation with its shapes: seconds of a call, on the device that does it."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    seconds: float


class _Timer(TorchDispatchMode):
    """Times products and attention where they are called."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self._found: dict[tuple[str, tuple[tuple[int, ...], ...]], list[Callable[[], float]]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if name not in PRODUCTS and not name.startswith(ATTENTION):
            return func(*args, **(kwargs or {}))
        shapes = tuple(tuple(one.shape) for one in args if isinstance(one, torch.Tensor))
        if self.device.type == "cuda":
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            out = func(*args, **(kwargs or {}))
            last.record()
            self._found.setdefault((name, shapes), []).append(
                lambda: first.elapsed_time(last) * 1e-3
            )
            return out
        started = time.perf_counter()
        out = func(*args, **(kwargs or {}))
        spent = time.perf_counter() - started
        self._found.setdefault((name, shapes), []).append(lambda: spent)
        return out

    def events(self) -> Iterator[Event]:
        """Medians, by name and shapes."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        for (name, shapes), spent in self._found.items():
            yield Event(name, shapes, statistics.median(one() for one in spent))


class Rig:
    """Models of one dtype on one device, and what their operations took."""

    def __init__(self, device: torch.device, dtype: torch.dtype, plan: Plan) -> None:
        self.device, self.dtype, self.plan = device, dtype, plan
        self.products, self.attention, self.cached = Timed({}), Timed({}), Timed({})
        self.few = {rows: Timed({}) for rows in plan.rows}

    def measure(self, width: int) -> None:
        """One model: prompts of every length, and one token for every number of sequences."""
        config = config_of(width, self.plan.layers)
        model = Model.build(config, 0, self.device, self.dtype)
        for length in self.plan.lengths:
            for event in self._events(model, 1, length, 0):
                self._sort(event, rows=None)
        for rows in self.plan.rows:
            for event in self._events(model, rows, 1, self.plan.context):
                self._sort(event, rows)

    def _sort(self, event: Event, rows: int | None) -> None:
        size = self.dtype.itemsize
        if event.name.startswith(ATTENTION):
            query, key = event.shapes[:2]
            flops = 4.0 * prod(query[:-1]) * key[-2] * query[-1]
            if rows is None:
                self.attention.add(flops / 2, event.seconds)
            else:
                self.cached.add(2.0 * prod(key) * size, event.seconds)
            return
        a, b = event.shapes[-2:]
        if rows is None:
            self.products.add(2.0 * prod(a) * b[-1], event.seconds)
        else:
            self.few[rows].add(float(prod(b) * size), event.seconds)

    @torch.no_grad()
    def _events(self, model: Model, batch: int, length: int, past: int) -> Iterator[Event]:
        tokens = torch.zeros(batch, length, dtype=torch.long, device=self.device)
        cache = model.cache(batch, past + length)

        def run() -> None:
            cache.length = past
            model.step(tokens, cache, last=True)

        run()
        timer = _Timer(self.device)
        with timer:
            for _ in range(self.plan.rounds):
                run()
        yield from timer.events()

    def wait(self) -> None:
        """Until all that was asked for is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def least(self, run: Callable[[], object]) -> float:
        """Least seconds of a call."""
        run()
        found: list[float] = []
        for _ in range(2 * self.plan.rounds):
            self.wait()
            started = time.perf_counter()
            run()
            self.wait()
            found.append(time.perf_counter() - started)
        return sorted(found)[len(found) // 4]


def config_of(width: int, layers: int) -> ModelConfig:
    """A plain model whose feed-forward is twice as wide."""
    heads = max(1, width // HEAD)
    shape = Shape(layers=layers, width=width, heads=heads, kv_heads=heads, ffn=2 * width, vocab=64)
    return ModelConfig.parse({"shape": shape, "design": "prenorm"})


def calibrate(
    device: str = "auto", say: Callable[[str], None] = lambda _: None, plan: Plan = PLAN
) -> DeviceSpec:
    """Measure products, attention, sums, and the program's own time, one after another."""
    place = torch.device(choose_device(device))
    rigs = {name: Rig(place, dtype, plan) for name, dtype in DTYPES.items()}
    for name, rig in rigs.items():
        for width in plan.widths:
            say(f"a model of width {width} in {name}")
            rig.measure(width)
    plain = rigs["float32"]
    say("sums")
    machine = describe(place, torch.float32)
    spec = DeviceSpec(
        name=machine.device if place.type == "cuda" else machine.processor,
        kind="gpu" if place.type == "cuda" else "cpu",
        memory=_memory(place),
        products={name: rig.products.rates() for name, rig in rigs.items()},
        skinny={
            name: tuple(Skinny(rows=rows, reading=timed.rates()) for rows, timed in rig.few.items())
            for name, rig in rigs.items()
        },
        attention=plain.attention.rates(),
        cached=plain.cached.rates(),
        bandwidth=_sums(plain),
        call=constant(0.0),
        overlaps=place.type == "cuda",
        source=f"measured on {machine.host}, {torch.get_num_threads()} thread(s), "
        f"torch {torch.__version__}",
    )
    say("the program's own time")
    return spec.model_copy(update={"call": _call(plain, spec)})


def _sums(rig: Rig) -> Curve:
    """Of two tensors into a third that is made for it."""
    timed = Timed({})
    for count in rig.plan.sums:
        pairs = [torch.randn(2, count, device=rig.device).unbind(0) for _ in range(4)]
        seconds = rig.least(lambda pairs=pairs: [a + b for a, b in pairs])
        timed.add(3.0 * 4 * count, seconds / len(pairs))
    return timed.rates()


@torch.no_grad()
def _call(rig: Rig, spec: DeviceSpec) -> Curve:
    """What a decoded token takes beside its work, shared by its operations."""
    points: list[Point] = []
    for width in rig.plan.bare:
        config = config_of(width, rig.plan.layers)
        model = Model.build(config, 0, rig.device)
        tokens = torch.zeros(1, 1, dtype=torch.long, device=rig.device)
        cache = model.cache(1, rig.plan.context + 1)

        def run(model: Model = model, cache: Any = cache, tokens: Any = tokens) -> None:
            cache.length = rig.plan.context
            model.step(tokens, cache)

        kernels = Stage(config, torch.float32, spec.kind == "cpu").decode(1, rig.plan.context)
        calls = sum(one.calls for one in kernels.kernels)
        size = sum(one.bytes for one in kernels.kernels)
        rest = rig.least(run) - predict(kernels.kernels, spec, "float32").seconds
        points.append((size / calls, max(rest / calls, LEAST)))
    return Curve(points=tuple(points))


def _memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return memory_bytes() or 0
