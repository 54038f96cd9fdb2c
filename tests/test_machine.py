"""Threads, allocator, number format and description of the machine."""

import platform
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from depthbench import machine
from depthbench.errors import DepthbenchError


def test_prepare_process_sets_threads_and_allocator_and_may_be_repeated() -> None:
    before = torch.get_num_threads()
    try:
        glibc = platform.system() == "Linux" and platform.libc_ver()[0] == "glibc"
        assert machine.prepare_process() is glibc
        assert torch.get_num_threads() == 1
        assert machine.prepare_process(threads=2) is glibc
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's allocator only")
def test_freed_memory_is_kept() -> None:
    machine.prepare_process()
    resident = Path("/proc/self/statm")

    def pages() -> int:
        return int(resident.read_text().split()[1])

    big = torch.ones(64 * 2**20 // 4)
    held = pages()
    del big
    assert held - pages() < 1000


def test_float32_is_taken_as_it_is() -> None:
    assert machine.choose_dtype("float32", "cpu") == (torch.float32, None)


@pytest.mark.parametrize("name", ["auto", "bfloat16"])
def test_bfloat16_where_the_processor_has_it(name: str) -> None:
    found = torch.cpu.get_capabilities()
    dtype, note = machine.choose_dtype(name, torch.device("cpu"))
    if found.get("avx512_bf16") or found.get("amx_bf16"):
        assert (dtype, note) == (torch.bfloat16, None)
    else:
        assert dtype == torch.float32
        assert note == (
            f"dtype {name}: this processor has no native bfloat16 products, float32 is used"
        )


def test_a_device_without_bfloat16_falls_back_with_a_note() -> None:
    dtype, note = machine.choose_dtype("bfloat16", "meta")
    assert dtype == torch.float32
    assert note == (
        "dtype bfloat16: device 'meta' has no native bfloat16 products, float32 is used"
    )


def test_unknown_dtype_names_the_nearest() -> None:
    with pytest.raises(DepthbenchError) as caught:
        machine.choose_dtype("bf16", "cpu")
    assert str(caught.value) == (
        "unknown dtype 'bf16', did you mean 'bfloat16'? Allowed: auto, bfloat16, float32"
    )


def test_describe_names_this_machine() -> None:
    said = machine.describe("cpu", torch.bfloat16)
    assert (said.device, said.dtype) == ("cpu", "bfloat16")
    assert said.torch == torch.__version__
    assert said.python == platform.python_version()
    assert said.cores >= 1
    assert said.processor


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_commit_is_that_of_the_packages_own_checkout_only(tmp_path: Path) -> None:
    package = tmp_path / "src" / "depthbench"
    package.mkdir(parents=True)
    assert machine._commit(package) is None

    def git(*words: str) -> str:
        author = ["-c", "user.name=a", "-c", "user.email=a@b"]
        command = ["git", "-C", str(tmp_path), *author, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "x")
    machine._commit.cache_clear()
    assert machine._commit(package) == git("rev-parse", "HEAD")
    inside = tmp_path / ".venv" / "depthbench"
    inside.mkdir(parents=True)
    assert machine._commit(inside) is None


ORPHAN = """
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from depthbench.machine import end_with_parent

if __name__ == "__main__":
    pool = ProcessPoolExecutor(2, get_context("spawn"), initializer=end_with_parent)
    # one worker is at work for long, one waits for work
    pool.submit(time.sleep, 0).result()
    pool.submit(time.sleep, 600)
    print("both are there", flush=True)
    time.sleep(600)
"""


def test_workers_end_when_the_one_that_began_them_is_killed(tmp_path: Path) -> None:
    machine.end_with_parent()  # nobody began this process: it goes on
    (tmp_path / "orphan.py").write_text(ORPHAN, encoding="utf-8")
    command = [sys.executable, str(tmp_path / "orphan.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "both are there\n"
        parent.send_signal(signal.SIGKILL)
        # their standard output is the parent's: it ends when the last of them has
        rest, _ = parent.communicate(timeout=20)
    assert rest == ""
