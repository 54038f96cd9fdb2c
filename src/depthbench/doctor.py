"""What this installation can do on this machine, how fast, and what it lacks for the rest."""

import importlib.metadata
import os
import platform
import time
from collections.abc import Callable
from typing import Literal

import torch
from packaging.requirements import Requirement

from depthbench.config import Frozen
from depthbench.cores import cores
from depthbench.machine import choose_device, choose_dtype, memory_bytes, prepare_process

BRINGS = {
    "data": "text from datasets of the Hugging Face Hub or on disk in its formats",
    "huggingface": "models of transformers and GGUF files: convert, probe, eval, prune",
    "streams": "information that streams share, by its estimators",
    "eval": "tasks of the lm-evaluation-harness",
    "ray": "studies on a Ray cluster",
    "tensorboard": "metrics to TensorBoard: train --log tensorboard",
    "wandb": "metrics to Weights & Biases: train --log wandb",
    "trackio": "metrics to Trackio: train --log trackio",
    "kernels": "fused kernels on a GPU under Linux",
    "docs": "building this documentation",
}
"""What each extra of the package is for; those for its developers left out."""
PRODUCT, COPY, ROUNDS = 1024, 2**25, 3
"""Side of a matrix product, numbers of a copy, and how often each is timed."""


class Extra(Frozen):
    """An extra of the package."""

    name: str
    brings: str
    missing: tuple[str, ...]
    """Packages of it that are not installed."""
    install: str
    """The command that brings them."""


class Speed(Frozen):
    """Of one process with one thread, measured now: other work on the machine makes it less."""

    dtype: str
    """That models are trained in here unless told otherwise."""
    flops_per_second: float
    """Of a matrix product in that dtype."""
    bytes_per_second: float
    """Read and written by a copy."""


class Health(Frozen):
    """All of it."""

    schema_version: Literal[1] = 1
    depthbench: str
    python: str
    torch: str
    platform: str
    cores: int
    memory_bytes: int | None
    """None where the system does not say."""
    threads: int
    """Of torch in a process of ours."""
    keeps_freed_memory: bool
    """Whether the allocator keeps what is freed, which small models are faster with."""
    device: str
    """That ``auto`` means."""
    gpus: tuple[str, ...]
    extras: tuple[Extra, ...]
    speed: Speed
    advice: tuple[str, ...]
    """What would make it better."""


def examine() -> Health:
    """Look at the installation and the machine; a second or two."""
    kept = prepare_process()
    device = choose_device("auto")
    extras = tuple(extra_of(name) for name in BRINGS)
    gpus = tuple(torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count()))
    found = Health(
        depthbench=importlib.metadata.version("depthbench"),
        python=platform.python_version(),
        torch=torch.__version__,
        platform=platform.platform(),
        cores=cores(),
        memory_bytes=memory_bytes(),
        threads=torch.get_num_threads(),
        keeps_freed_memory=kept,
        device=device,
        gpus=gpus,
        extras=extras,
        speed=measure_speed(device),
        advice=(),
    )
    return found.model_copy(update={"advice": tuple(_advice(found))})


def extra_of(name: str) -> Extra:
    """What is missing of an extra, by the package's own metadata."""
    every = map(Requirement, importlib.metadata.requires("depthbench") or ())
    wanted = [one for one in every if one.marker and one.marker.evaluate({"extra": name})]
    missing = tuple(one.name for one in wanted if not _installed(one.name))
    return Extra(
        name=name,
        brings=BRINGS[name],
        missing=missing,
        install=f"pip install 'depthbench[{name}]'",
    )


def measure_speed(device: str) -> Speed:
    """The best of a few rounds of a matrix product and of a copy."""
    dtype = choose_dtype("auto", device)[0]
    a, b = (torch.randn(PRODUCT, PRODUCT, device=device).to(dtype) for _ in range(2))
    source = torch.ones(COPY, device=device)
    target = torch.empty_like(source)
    product = _least(lambda: torch.matmul(a, b), device)
    copy = _least(lambda: target.copy_(source), device)
    return Speed(
        dtype=str(dtype).removeprefix("torch."),
        flops_per_second=2 * PRODUCT**3 / product,
        bytes_per_second=2 * COPY * source.element_size() / copy,
    )


def _least(act: Callable[[], object], device: str) -> float:
    times: list[float] = []
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        act()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    # the first round warms up
    return min(times[1:])


def _installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _advice(found: Health) -> list[str]:
    advice: list[str] = []
    if os.environ.get("OMP_NUM_THREADS") not in (None, "1"):
        advice.append(
            f"OMP_NUM_THREADS = {os.environ['OMP_NUM_THREADS']}: workers set one thread each, and "
            "other tools may not. Unset it, or set it to 1"
        )
    if found.platform.startswith("Linux") and not found.keeps_freed_memory:
        advice.append(
            "the allocator could not be told to keep freed memory (not glibc): small models train "
            "a little slower"
        )
    if found.device == "cpu" and found.speed.dtype == "float32":
        advice.append("this processor has no bfloat16 products: training is in float32")
    return advice
