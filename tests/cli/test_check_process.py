"""`depthbench check` in a process of its own, without this session's run-time checks."""

import subprocess
import sys
from pathlib import Path

from tests.cli.test_check import altered


def test_a_card_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "counted.py").write_text(altered('own="0"', "own=3"), encoding="utf-8")
    command = [sys.executable, "-m", "depthbench", "check", "counted.py", "--law", "facts"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "the card of Mine has own = 3, but text is needed" in done.stderr
