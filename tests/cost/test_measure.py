"""Measurements: what they hold, where they come from, and memory against the ledger."""

from pathlib import Path

import pytest
import torch

from depthbench.cost.calibrate import Plan, calibrate
from depthbench.cost.energy import PackageMeter, find_meter
from depthbench.cost.ledger import ledger_of
from depthbench.cost.measure import BenchConfig, measure, measure_here
from depthbench.errors import DepthbenchError
from depthbench.nn.model import ModelConfig
from depthbench.shapes import Shape

SHAPE = Shape(layers=2, width=32, heads=2, kv_heads=2, ffn=64, vocab=64)
CONFIG = ModelConfig.parse({"shape": SHAPE, "design": "prenorm"})
SMALL = Plan(
    widths=(64, 128),
    bare=(16, 32),
    layers=2,
    rows=(1, 2),
    lengths=(4, 8),
    context=6,
    sums=(64, 256),
    rounds=2,
)


def test_every_round_is_counted_and_the_first_token_comes_after_the_prompt() -> None:
    found = measure_here(CONFIG, BenchConfig(context=8, tokens=3, batch=2, repeats=3))
    for one in (found.prefill, found.first, found.each):
        assert 0 < one.low <= one.median <= one.high
        assert one.relative == pytest.approx((one.high - one.low) / one.median)
    assert found.first.low > found.prefill.low
    assert found.tokens_per_second == pytest.approx(2 / found.each.median)
    assert found.machine.torch == torch.__version__
    assert found.notes[0].startswith("energy: ")


@pytest.mark.slow
def test_the_peak_of_a_process_of_its_own_is_the_ledgers() -> None:
    shape = Shape(layers=4, width=512, heads=8, kv_heads=8, ffn=1376, vocab=257)
    one = ModelConfig.parse({"shape": shape, "design": "prenorm"})
    found = measure(one, BenchConfig(context=1024, tokens=2, repeats=1))
    ledger = ledger_of(one, context=1024, fast=True)
    if found.peak_bytes is None:
        pytest.skip("this system does not tell a process's peak")
    # beside tensors: the libraries' work space and pages that the allocator keeps
    assert ledger.prefill.peak_bytes < found.peak_bytes < ledger.prefill.peak_bytes + 48 * 2**20


def test_settings_are_checked_before_a_process_starts() -> None:
    with pytest.raises(DepthbenchError, match="unknown dtype"):
        measure(CONFIG, BenchConfig(dtype="float8"))
    if not torch.cuda.is_available():
        with pytest.raises(DepthbenchError, match="finds no GPU here"):
            measure(CONFIG, BenchConfig(device="cuda"))


def test_a_machine_is_described_by_what_was_timed() -> None:
    said: list[str] = []
    spec = calibrate("cpu", said.append, SMALL)
    flops = {size for size, _ in spec.products["float32"].points}
    # of a prompt of 4 and of 8 tokens: queries, keys and values together, their way back, and the
    # head's last position
    assert flops >= {2.0 * tokens * 64 * 3 * 64 for tokens in (4, 8)} | {2.0 * 4 * 128 * 128}
    assert [one.rows for one in spec.skinny["bfloat16"]] == [1, 2]
    reading = [size for size, _ in spec.skinny["bfloat16"][0].reading.points]
    assert {2.0 * 64 * 64, 2.0 * 64 * 3 * 64} <= set(reading)
    assert spec.cached is not None
    # one query of one or two sequences, behind six tokens and with its own
    assert [size for size, _ in spec.cached.points] == [
        2.0 * 4 * rows * 7 * width for rows, width in ((1, 64), (1, 128), (2, 128))
    ]
    assert [size for size, _ in spec.bandwidth.points] == [12.0 * 64, 12.0 * 256]
    assert all(rate > 0 for _, rate in spec.attention.points)
    assert len(spec.call.points) == 2
    assert all(0 < seconds < 1e-2 for _, seconds in spec.call.points)
    assert spec.memory > 2**28
    assert "sums" in said
    assert not spec.overlaps


def test_joules_go_on_where_a_counter_starts_anew(tmp_path: Path) -> None:
    for name, joules in (("intel-rapl:0", 5_000_000), ("intel-rapl:1", 1_000_000)):
        domain = tmp_path / name
        domain.mkdir()
        (domain / "energy_uj").write_text(str(joules))
        (domain / "max_energy_range_uj").write_text("10000000")
    inner = tmp_path / "intel-rapl:0:0"
    inner.mkdir()
    meter, said = find_meter(torch.device("cpu"), tmp_path)
    assert isinstance(meter, PackageMeter)
    assert said == "energy: RAPL, whole processors"
    assert meter.joules() == pytest.approx(6.0)
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("2000000")
    # 5 J up to the end at 10 J, 2 J behind it, and 1 J of the other
    assert meter.joules() == pytest.approx(13.0)
    assert find_meter(torch.device("cpu"), tmp_path / "none")[0] is None
