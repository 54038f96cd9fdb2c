"""Time and memory of a model as it runs: each in a process of its own."""

import gc
import re
import statistics
import time
from pathlib import Path

import torch
from pydantic import Field

from depthbench.config import Frozen, Seed
from depthbench.cost.energy import Meter, find_meter
from depthbench.cost.ledger import dtype_of
from depthbench.machine import choose_device, describe
from depthbench.nn.cache import Cache
from depthbench.nn.model import Model, ModelConfig
from depthbench.processes import pool_of
from depthbench.shapes import Shape
from depthbench.study.store import Machine

STATUS = Path("/proc/self/status")
RESET = Path("/proc/self/clear_refs")


class BenchConfig(Frozen):
    """What is run."""

    context: int = Field(default=512, ge=1)
    """Tokens of the prompt."""
    tokens: int = Field(default=16, ge=1)
    """That are decoded behind it, one at a time."""
    batch: int = Field(default=1, ge=1)
    """Sequences at once."""
    dtype: str = "float32"
    """Of weights and activations."""
    device: str = "cpu"
    """``cpu`` or ``cuda``."""
    warmup: int = Field(default=1, ge=0)
    """Rounds that are not counted."""
    repeats: int = Field(default=5, ge=1)
    """Rounds that count."""
    threads: int = Field(default=1, ge=1)
    """Of torch."""
    seed: Seed = 0
    """Of the random weights."""


class Spread(Frozen):
    """Of one figure over repeats."""

    median: float
    low: float
    high: float

    @property
    def relative(self) -> float:
        """From lowest to highest, over the median."""
        return (self.high - self.low) / self.median


class Measured(Frozen):
    """What one model took."""

    config: BenchConfig
    prefill: Spread
    """Seconds until the last logits of the prompt."""
    first: Spread
    """Seconds until the first token is known (TTFT)."""
    each: Spread
    """Seconds from one token to the next (TPOT), a mean over those of a repeat."""
    tokens_per_second: float
    """Of decoding, over the batch, at the median."""
    peak_bytes: int | None
    """Largest that the model and its run took; None where the system does not tell."""
    joules_per_token: float | None
    """Of decoding, of all that the meter counts; None where nothing counts."""
    notes: list[str]
    machine: Machine


def measure(model: ModelConfig, config: BenchConfig) -> Measured:
    """In a fresh process, so that nothing of another run is in its memory.

    Raises `DepthbenchError` for a device or dtype that is not there.
    """
    choose_device(config.device)
    dtype_of(config.dtype)
    with pool_of(1, torch.set_num_threads, config.threads) as pool:
        return pool.submit(measure_here, model, config).result()


def measure_here(model: ModelConfig, config: BenchConfig) -> Measured:
    """In this process."""
    device = torch.device(choose_device(config.device))
    _load_libraries(device)
    memory = _Memory(device)
    built = _random(model, config.seed, device, dtype_of(config.dtype))
    generator = torch.Generator().manual_seed(config.seed)
    size = (config.batch, config.context)
    prompt = torch.randint(model.shape.vocab, size, generator=generator).to(device)
    cache = built.cache(config.batch, config.context + config.tokens)
    memory.start()
    meter, said = find_meter(device)
    run = _Run(built, prompt, cache, config.tokens, device, meter)
    rounds = [run() for _ in range(config.warmup + config.repeats)][config.warmup :]
    each = _spread([one.each for one in rounds])
    joules = [one.joules for one in rounds if one.joules is not None]
    return Measured(
        config=config,
        prefill=_spread([one.prefill for one in rounds]),
        first=_spread([one.first for one in rounds]),
        each=each,
        tokens_per_second=config.batch / each.median,
        peak_bytes=memory.peak(),
        joules_per_token=statistics.median(joules) if joules else None,
        notes=[said],
        machine=describe(device, dtype_of(config.dtype)),
    )


class _Round(Frozen):
    prefill: float
    first: float
    each: float
    joules: float | None


class _Run:
    """One prompt, and the tokens behind it."""

    def __init__(
        self,
        model: Model,
        prompt: torch.Tensor,
        cache: Cache,
        tokens: int,
        device: torch.device,
        meter: Meter | None,
    ) -> None:
        self.model, self.prompt, self.cache, self.tokens = model, prompt, cache, tokens
        self.meter = meter
        self.device = device

    def wait(self) -> None:
        """Until all that was asked for is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    @torch.no_grad()
    def __call__(self) -> _Round:
        model, cache = self.model, self.cache
        cache.length = 0
        self.wait()
        started = time.perf_counter()
        logits = model.step(self.prompt, cache, last=True)
        self.wait()
        filled = time.perf_counter()
        token = logits[:, -1:].argmax(-1)
        self.wait()
        known = time.perf_counter()
        before = None if self.meter is None else self.meter.joules()
        for _ in range(self.tokens):
            token = model.step(token, cache)[:, -1:].argmax(-1)
            self.wait()
        ended = time.perf_counter()
        used = None
        if self.meter is not None and before is not None:
            used = (self.meter.joules() - before) / (self.tokens * len(self.prompt))
        return _Round(
            prefill=filled - started,
            first=known - started,
            each=(ended - known) / self.tokens,
            joules=used,
        )


class _Memory:
    """Peak of a run, over what the process took before the model was there."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        gc.collect()
        self.before = _status("VmRSS")
        self.told = False

    def start(self) -> None:
        """Forget what building the model took beside the model."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            return
        try:
            RESET.write_text("5")
            self.told = True
        except OSError:
            self.told = False

    def peak(self) -> int | None:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        now = _status("VmHWM")
        if now is None or self.before is None or not self.told:
            return None
        return now - self.before


@torch.no_grad()
def _random(config: ModelConfig, seed: int, device: torch.device, dtype: torch.dtype) -> Model:
    """A model with any weights, made in place: what a start's own tensors take would stay with
    the process and look like the model's.
    """
    model = Model.on_meta(config).to(dtype).to_empty(device=device).eval()
    generator = torch.Generator(device).manual_seed(seed)
    for one in model.parameters():
        one.normal_(std=0.02, generator=generator)
    return model


def _load_libraries(device: torch.device) -> None:
    """Run a tiny model once: what torch and its libraries take for themselves is no model's."""
    shape = Shape(layers=1, width=64, heads=2, kv_heads=2, ffn=64, vocab=64)
    model = Model.build(ModelConfig.parse({"shape": shape, "design": "prenorm"}), 0, device)
    cache = model.cache(1, 64)
    model.step(torch.zeros(1, 63, dtype=torch.long, device=device), cache)
    model.step(torch.zeros(1, 1, dtype=torch.long, device=device), cache)


def _status(name: str) -> int | None:
    try:
        found = re.search(rf"^{name}:\s+(\d+) kB", STATUS.read_text(), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else int(found[1]) * 1024


def _spread(values: list[float]) -> Spread:
    return Spread(median=statistics.median(values), low=min(values), high=max(values))
