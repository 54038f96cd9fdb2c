"""`train.compile` with torch's own compiler, where there is a C++ compiler for it."""

import shutil

import pytest

from tests.train.compiled import trained
from tests.train.test_compile import GROWS


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler for torch's")
def test_losses_are_those_of_eager_training() -> None:
    found = trained("inductor", "design=hc", "design=attnres,dtype=bfloat16,checkpointing=true")
    assert [one["notes"] for one in found] == [[], [GROWS]]
    for one, rounding in zip(found, (1e-5, 5e-3), strict=True):
        assert one["compiled"] == pytest.approx(one["eager"], rel=rounding)
        assert one["compiled"] != one["eager"]
