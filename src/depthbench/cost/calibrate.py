"""What this machine can do: a description of it from measurements of half a minute."""

import os
import platform
import time
from collections.abc import Callable

import torch
from torch.nn.functional import linear, scaled_dot_product_attention

from depthbench.config import Frozen
from depthbench.cost.devices import Curve, DeviceSpec, Point, Skinny
from depthbench.cost.passes import Stage
from depthbench.cost.predict import predict
from depthbench.machine import choose_device, describe
from depthbench.nn.model import Model, ModelConfig
from depthbench.shapes import Shape

Triple = tuple[int, int, int]


class Plan(Frozen):
    """Sizes that are timed."""

    products: tuple[Triple, ...] = (
        (64, 64, 64),
        (256, 128, 128),
        (512, 256, 256),
        (512, 256, 1024),
        (512, 1024, 1024),
        (1024, 1024, 4096),
    )
    """``(rows, inner, columns)``."""
    matrices: tuple[tuple[int, int], ...] = (
        (64, 64),
        (256, 256),
        (256, 1024),
        (1024, 1024),
        (1024, 4096),
        (4096, 8192),
    )
    """``(inner, columns)`` that few rows are multiplied with."""
    rows: tuple[int, ...] = (1, 4, 16, 64)
    sums: tuple[int, ...] = (2**12, 2**15, 2**18, 2**20, 2**22, 2**24)
    """Numbers that are added to as many others."""
    lengths: tuple[int, ...] = (64, 256, 1024, 2048)
    """Of attention."""
    cold: int = 2**27
    """Bytes of matrices that are read in turn, so that none is still in a cache."""
    rounds: int = 5
    seconds: float = 0.01
    """That one round takes at least."""


TINY = Shape(layers=8, width=16, heads=2, kv_heads=2, ffn=16, vocab=64)
"""A model whose time is all launches."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


PLAN = Plan()


class Clock:
    """Seconds of a call on one device."""

    def __init__(self, device: torch.device, plan: Plan) -> None:
        self.device, self.plan = device, plan

    def __call__(self, run: Callable[[], object]) -> float:
        """Least over rounds of the mean of as many calls as fill a round.

        What the machine can do: whatever else it does meanwhile only adds.
        """
        self._timed(run, 1)
        calls = max(1, int(self.plan.seconds / max(self._timed(run, 1), 1e-7)))
        return min(self._timed(run, calls) / calls for _ in range(self.plan.rounds))

    def _timed(self, run: Callable[[], object], calls: int) -> float:
        self.wait()
        started = time.perf_counter()
        for _ in range(calls):
            run()
        self.wait()
        return time.perf_counter() - started

    def wait(self) -> None:
        """Until all that was asked for is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def calibrate(
    device: str = "auto", say: Callable[[str], None] = lambda _: None, plan: Plan = PLAN
) -> DeviceSpec:
    """Measure matrix products, reading, sums, attention, and the time of a kernel."""
    place = torch.device(choose_device(device))
    clock = Clock(place, plan)
    with torch.no_grad():
        products, skinny = {}, {}
        for name, dtype in DTYPES.items():
            say(f"products in {name}")
            products[name] = _products(clock, dtype)
            say(f"reading matrices in {name}")
            skinny[name] = tuple(
                Skinny(rows=rows, reading=_reading(clock, dtype, rows)) for rows in plan.rows
            )
        say("attention")
        attention = _attention(clock)
        say("sums")
        bandwidth = _sums(clock)
        machine = describe(place, torch.float32)
        spec = DeviceSpec(
            name=machine.device if place.type == "cuda" else machine.processor,
            kind="gpu" if place.type == "cuda" else "cpu",
            memory=_memory(place),
            products=products,
            skinny=skinny,
            attention=attention,
            bandwidth=bandwidth,
            call=0.0,
            overlaps=place.type == "cuda",
            source=f"measured on {machine.host}, {torch.get_num_threads()} thread(s), "
            f"torch {torch.__version__}",
        )
        say("calls")
        return spec.model_copy(update={"call": _call(clock, spec)})


def _products(clock: Clock, dtype: torch.dtype) -> Curve:
    points: list[Point] = []
    for rows, inner, columns in clock.plan.products:
        x = torch.randn(rows, inner, device=clock.device).to(dtype)
        weight = torch.randn(columns, inner, device=clock.device).to(dtype)
        flops = 2.0 * rows * inner * columns
        points.append((flops, flops / clock(lambda x=x, weight=weight: linear(x, weight))))
    return Curve(points=tuple(sorted(points)))


def _reading(clock: Clock, dtype: torch.dtype, rows: int) -> Curve:
    points: list[Point] = []
    for inner, columns in clock.plan.matrices:
        size = inner * columns * dtype.itemsize
        count = max(2, clock.plan.cold // size) if size > 2**15 else 64
        weights = torch.randn(columns, inner, device=clock.device).to(dtype)
        several = weights.expand(min(count, 4096), -1, -1).contiguous().unbind(0)
        x = torch.randn(rows, inner, device=clock.device).to(dtype)

        def run(x: torch.Tensor = x, several: tuple[torch.Tensor, ...] = several) -> None:
            for one in several:
                linear(x, one)

        points.append((float(size), size * len(several) / clock(run)))
    return Curve(points=tuple(points))


def _attention(clock: Clock) -> Curve:
    points: list[Point] = []
    for length in clock.plan.lengths:
        q = torch.randn(1, 8, length, 64, device=clock.device)
        flops = 2.0 * 8 * length**2 * 64
        seconds = clock(lambda q=q: scaled_dot_product_attention(q, q, q, is_causal=True))
        points.append((flops, flops / seconds))
    return Curve(points=tuple(points))


def _sums(clock: Clock) -> Curve:
    points: list[Point] = []
    for count in clock.plan.sums:
        a, b = torch.randn(2, count, device=clock.device)
        out = torch.empty_like(a)
        size = 3.0 * 4 * count
        points.append((size, size / clock(lambda a=a, b=b, out=out: torch.add(a, b, out=out))))
    return Curve(points=tuple(points))


def _call(clock: Clock, spec: DeviceSpec) -> float:
    """What a decoded token of a tiny model takes beside its work, shared by its operations."""
    config = ModelConfig.parse({"shape": TINY, "design": "prenorm"})
    model = Model.build(config, seed=0, device=clock.device)
    tokens = torch.zeros(1, 1, dtype=torch.long, device=clock.device)
    cache = model.cache(1, 64)

    def run() -> None:
        cache.length = 32
        model.step(tokens, cache)

    seconds = clock(run)
    kernels = Stage(config, torch.float32, spec.kind == "cpu").decode(1, 32).kernels
    work = predict(kernels, spec, "float32").seconds
    return max(seconds - work, 0.0) / sum(one.calls for one in kernels)


def _memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    if platform.system() == "Windows":  # no sysconf there
        return 0
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
