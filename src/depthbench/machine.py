"""How a process uses its machine: threads, allocator, number format, and a description of it."""

import ctypes
import functools
import importlib.metadata
import multiprocessing
import os
import platform
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch

from depthbench.errors import DepthbenchError, unknown
from depthbench.study.store import Machine

_TRIM_THRESHOLD: Final = -1
_MMAP_MAX: Final = -4
_NEVER: Final = 2**31 - 1


def prepare_process(threads: int = 1) -> bool:
    """Set the process up for small models; call it before the first big allocation.

    ``threads`` for torch: one, because models run side by side in processes and two OpenMP threads
    that wait for a busy core are several times slower than one. On Linux with glibc, freed memory
    is kept instead of being given back to the system and faulted in again at every step.
    May be called again. Returns whether the allocator was set; elsewhere it is left as it is.
    """
    torch.set_num_threads(threads)
    return _keep_freed_memory()


def end_with_parent() -> None:
    """End this process, a child of `multiprocessing`, as soon as the one that began it is gone.

    However that one ended, by SIGKILL too: a worker of a pool would wait for work for ever. What
    the main thread is at is broken off. Nothing happens in a process that nobody began so.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        # the main thread may be in a queue or a collective that nobody answers any more
        os._exit(1)

    threading.Thread(target=wait, daemon=True, name="end-with-parent").start()


@functools.cache
def _keep_freed_memory() -> bool:
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    mallopt.argtypes, mallopt.restype = [ctypes.c_int, ctypes.c_int], ctypes.c_int
    return mallopt(_MMAP_MAX, 0) == 1 and mallopt(_TRIM_THRESHOLD, _NEVER) == 1


def memory_bytes() -> int | None:
    """Of the machine; None where the system does not say."""
    names = os.sysconf_names if os.name == "posix" else {}
    if "SC_PHYS_PAGES" not in names or "SC_PAGE_SIZE" not in names:
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def choose_device(name: str) -> str:
    """``cpu`` or ``cuda``; ``auto`` is a GPU where torch finds one.

    Raises `DepthbenchError` for any other name, and for a GPU that is not there.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise unknown("device", name, ("auto", "cpu", "cuda"))
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise DepthbenchError("device cuda: torch finds no GPU here. Use --device cpu")
    return "cuda" if there and name != "cpu" else "cpu"


def choose_dtype(name: str, device: torch.device | str) -> tuple[torch.dtype, str | None]:
    """The dtype of matrix products for ``auto``, ``float32`` or ``bfloat16`` on ``device``.

    ``auto`` is bfloat16 where the device multiplies it natively (a processor with avx512_bf16 or
    amx_bf16, a GPU that supports it). The second value says in words that float32 stands in for a
    bfloat16 that the device lacks. Raises `DepthbenchError` for any other name.
    """
    if name not in ("auto", "float32", "bfloat16"):
        raise unknown("dtype", name, ("auto", "float32", "bfloat16"))
    if name == "float32":
        return torch.float32, None
    kind = torch.device(device).type
    if _multiplies_bfloat16(kind):
        return torch.bfloat16, None
    what = "this processor" if kind == "cpu" else f"device '{device}'"
    return torch.float32, f"dtype {name}: {what} has no native bfloat16 products, float32 is used"


def _multiplies_bfloat16(kind: str) -> bool:
    if kind == "cpu":
        found = _capabilities()
        return any(found.get(name, False) for name in ("avx512_bf16", "amx_bf16"))
    return kind == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def describe(device: torch.device | str, dtype: torch.dtype) -> Machine:
    """What a result row says about where it was made."""
    device = torch.device(device)
    return Machine(
        host=platform.node(),
        platform=platform.platform(),
        processor=_processor(),
        cores=os.cpu_count() or 1,
        device=torch.cuda.get_device_name(device) if _is_gpu_here(device) else str(device),
        dtype=str(dtype).removeprefix("torch."),
        python=platform.python_version(),
        torch=torch.__version__,
        depthbench=importlib.metadata.version("depthbench"),
        commit=_commit(Path(__file__).resolve().parent),
    )


def _is_gpu_here(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_available()


def _capabilities() -> Mapping[str, object]:
    try:
        return torch.cpu.get_capabilities()
    except AttributeError:  # an older torch cannot tell: float32 is always right
        return {}


def _processor() -> str:
    name = _capabilities().get("cpu_name")
    return str(name or platform.processor() or platform.machine())


@functools.cache
def _commit(package: Path) -> str | None:
    """Commit of the checkout that ``package`` is the source of; None anywhere else."""
    command = ["git", "-C", str(package), "rev-parse", "--show-toplevel", "HEAD"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    top, commit = answer.stdout.splitlines()
    return commit if package == Path(top).resolve() / "src" / "depthbench" else None
