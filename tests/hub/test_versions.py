"""The oldest transformers that we work with, beside the one that is installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# huggingface_hub 1 came with transformers 5, and newer datasets ask for it
OLD = ("transformers==4.57.*", "huggingface_hub<1", "tokenizers<0.23", "datasets==4.0.*")
UNREACHED = ("connection", "timed out", "name resolution")
PROBES = ("huggingface", "hf_prune", "pretrained")
TESTS = ("hub", "evals", *(f"probes/test_{name}.py" for name in PROBES))


def ran(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command in the repository's root, by this Python."""
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | variables,
        check=False,
    )


@pytest.mark.slow
def test_quick_tests_pass_on_transformers_4(tmp_path: Path) -> None:
    place = tmp_path / "old"
    asked = ("install", "--quiet", "--no-deps", "--target", str(place), *OLD)
    installed = ran("-m", "pip", *asked)
    if installed.returncode and any(one in installed.stderr.lower() for one in UNREACHED):
        pytest.skip(f"pip reached no index: {installed.stderr.strip().splitlines()[-1]}")
    assert installed.returncode == 0, installed.stderr
    path = os.pathsep.join((str(place), str(ROOT / "src")))
    version = ran("-c", "import transformers as t; print(t.__version__)", PYTHONPATH=path)
    assert version.stdout.startswith("4.57."), version.stderr
    tests = [f"tests/{one}" for one in TESTS]
    given = ("-m", "not slow", "-p", "no:cacheprovider", *tests)
    found = ran("-m", "pytest", *given, PYTHONPATH=path)
    assert found.returncode == 0, found.stdout[-4000:]
