"""One process at a time writes in a trial's folder, wherever it runs."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from depthbench.study.claim import TakenError, claimed

HOLD = """
import sys
from pathlib import Path
from depthbench.study.claim import claimed
with claimed(Path(sys.argv[1]), lambda: False):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process that holds the claim on the folder until its stdin ends."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


def never() -> bool:
    return False


def after(calls: int) -> Callable[[], bool]:
    """False so many times, then True."""
    left = iter(range(calls))
    return lambda: next(left, None) is None


def test_a_folder_is_claimed_by_one_process(
    holder: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    with pytest.raises(TakenError) as caught, claimed(tmp_path, never, wait=0.3):
        pytest.fail("two processes held it")
    assert str(caught.value).startswith(f"process {holder.pid} on ")
    assert str(caught.value).endswith(" still trains it")


def test_waiting_for_it_ends_when_told_to_stop(
    holder: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    with pytest.raises(TakenError), claimed(tmp_path, after(2), wait=1e9):
        pytest.fail("two processes held it")
    assert holder.poll() is None


def test_what_a_killed_process_held_is_free(
    holder: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    holder.kill()
    with claimed(tmp_path, never) as claim:
        claim.check()
    assert not claim.path.exists()


def test_a_process_whose_lock_was_given_away_notices(tmp_path: Path) -> None:
    with claimed(tmp_path, never, look=0.0) as claim:
        claim.check()
        # what another node does that was given the lock
        claim.path.write_text("process 7 on other (0)")
        with pytest.raises(TakenError) as caught:
            claim.check()
    assert str(caught.value) == "process 7 on other (0) has taken the trial over"
    assert claim.path.read_text() == "process 7 on other (0)"


def test_a_look_at_the_owner_is_rare(tmp_path: Path) -> None:
    with claimed(tmp_path, never) as claim:
        claim.check()
        claim.path.write_text("process 7 on other (0)")
        claim.check()
