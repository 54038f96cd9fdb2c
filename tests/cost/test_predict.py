"""Times of kernels on made-up devices, by hand."""

import json
from pathlib import Path

import pytest

from depthbench.cost.devices import (
    BUILT_IN,
    Curve,
    DeviceSpec,
    Skinny,
    Tile,
    constant,
    find_device,
    read_device,
)
from depthbench.cost.explain import Side, difference, dominant, flops
from depthbench.cost.passes import ATTENTION, Pass
from depthbench.cost.predict import Split, of_pass, predict
from depthbench.cost.record import Kernel, Size
from depthbench.cost.serving import check_sizes
from depthbench.errors import DepthbenchError
from depthbench.quantities import bytes_text, seconds_text
from depthbench.shapes import Shape


def device(**changes: object) -> DeviceSpec:
    """100 FLOP/s in products, 50 in attention, 10 B/s, half a second a call."""
    data: dict[str, object] = {
        "name": "made up",
        "kind": "gpu",
        "memory": 1000,
        "products": {"float32": constant(100.0)},
        "attention": constant(50.0),
        "bandwidth": constant(10.0),
        "call": constant(0.5),
        "overlaps": True,
        "source": "made up",
    }
    return DeviceSpec.model_validate(data | changes)


def product(rows: int = 10, weights: int = 0, part: str = ATTENTION) -> Kernel:
    """Ten by ten by ``rows``: 200 FLOPs a row."""
    return Kernel("mm", "product", part, 200 * rows, 40, 40, weights, size=Size(1, rows, 10, 10))


SUM = Kernel("add", "other", "", 5, 20, 20, 0, calls=3)


def test_a_kernel_takes_what_bounds_it() -> None:
    # 2000 FLOPs at 100 a second, more than 80 bytes at 10 a second
    found = predict([product()], device(), "float32")
    assert found.by_bound == {"products": 20.0}
    # 40 bytes at 10, more than three calls
    assert predict([SUM], device(), "float32").by_bound == {"traffic": 4.0}
    slow = predict([SUM], device(call=constant(2.0)), "float32")
    assert slow.by_bound == {"launches": 6.0}
    attention = Kernel("sdpa", "attention", ATTENTION, 1000, 10, 10, 0)
    assert predict([attention], device(), "float32").by_bound == {"attention": 20.0}
    reading = Kernel("sdpa", "attention", ATTENTION, 10, 990, 10, 0)
    assert predict([reading], device(), "float32").by_bound == {"cache": 100.0}


def test_where_nothing_overlaps_calls_and_work_add_up() -> None:
    found = predict([product(), SUM], device(overlaps=False), "float32")
    assert found.by_bound == {"products": 20.0, "launches": 2.0, "traffic": 4.0}
    assert found.seconds == 26.0
    assert found.by_part == {ATTENTION: 20.5, "": 5.5}
    assert found.share("launches") == pytest.approx(2 / 26)
    assert dominant(found) == "products"


def test_few_rows_take_what_was_measured_between_rows() -> None:
    skinny = (
        Skinny(rows=1, reading=constant(100.0)),
        Skinny(rows=4, reading=constant(25.0)),
    )
    spec = device(skinny={"float32": skinny}, call=constant(0.0))
    one, two, four = (
        predict([product(rows, weights=400)], spec, "float32").by_bound for rows in (1, 2, 4)
    )
    assert one == {"weights": 4.0}
    # half way on logarithmic axes: the geometric mean
    assert two == {"weights": pytest.approx(8.0)}
    assert four == {"weights": pytest.approx(16.0)}
    many = predict([product(10, weights=400)], spec, "float32")
    assert many.by_bound == {"products": 20.0}


def test_tiles_that_are_not_filled_are_paid_for() -> None:
    spec = device(units=4, tiles=(Tile(rows=8, columns=8, share=1.0),))
    # one tile of 64 steps: one of four units works; four times as long, it is cut into four
    assert spec.fill(1, 8, 64, 8) == pytest.approx(0.25)
    assert spec.fill(1, 8, 256, 8) == pytest.approx(1.0)
    # sixteen steps cost as much as 64
    assert spec.fill(1, 8, 16, 8) == pytest.approx(16 / 64 / 4)
    # nine columns need two tiles, three rounds of units hold twelve of them
    assert spec.fill(1, 8, 512, 9) == pytest.approx(9 / 16)
    # five tiles take two rounds of four; in eighths they are forty, ten rounds without a rest
    assert spec.fill(5, 8, 512, 8) == pytest.approx(1.0)
    assert spec.fill(5, 8, 64, 8) == pytest.approx(5 / 8)
    assert device().fill(1, 3, 3, 3) == 1.0


def test_a_narrow_product_is_slower_than_its_flops_on_a_gpu() -> None:
    gpu = find_device("h100")
    wide = gpu.fill(1, 4096, 1216, 3648)
    narrow = gpu.fill(1, 4096, 640, 640)
    assert narrow < wide <= 1.0


def test_splits_share_branches_and_pay_for_messages() -> None:
    spec = device(call=constant(0.0), link=8.0, latency=0.25)
    whole = Pass((product(), SUM), held=0, peak=0, kept=0, state=16)
    two = of_pass(whole, spec, "float32", blocks=3, moved=8, split=Split(tensor=2))
    # the product is halved, the sum of the design is not; 2·3 messages of 2·(1/2)·8 bytes
    assert two.by_bound == {"products": 10.0, "traffic": 4.0, "link": 6 * (1.0 + 0.25)}
    assert two.seconds == sum(two.by_bound.values()) == sum(two.by_part.values())
    piped = of_pass(whole, spec, "float32", blocks=3, moved=8, split=Split(pipeline=3))
    assert piped.by_bound == {"products": 20.0, "traffic": 4.0, "link": 2 * (2.0 + 0.25)}
    with pytest.raises(DepthbenchError, match="no link to another"):
        of_pass(whole, device(), "float32", blocks=3, moved=8, split=Split(tensor=2))


def test_a_graph_leaves_the_programs_own_time_out() -> None:
    spec = device(kernel=0.1).graphed()
    assert predict([SUM], spec, "float32").by_bound == {"traffic": 4.0}
    idle = Kernel("add", "other", "", 1, 0, 0, 0)
    assert predict([idle], spec, "float32").seconds == pytest.approx(0.1)


def test_curves_are_straight_on_logarithmic_axes() -> None:
    curve = Curve(points=((10.0, 1.0), (1000.0, 100.0)))
    assert curve.at(100.0) == pytest.approx(10.0)
    assert (curve.at(1.0), curve.at(1e6), curve.best) == (1.0, 100.0, 100.0)


def test_why_one_is_slower_is_said_with_its_parts() -> None:
    slow = predict([SUM] * 6 + [product()], device(overlaps=False), "float32")
    fast = predict([SUM, product()], device(overlaps=False), "float32")
    said = difference(
        Side(name="deep", times=slow, measured=3.0), Side(name="wide", times=fast), "token"
    )
    assert said == (
        "deep takes 2.06x the time of wide per token: of the difference +73% sums and copies "
        "(4 s → 24 s), +27% the program's own calls (2 s → 9.5 s); 7 kernels one after another "
        "instead of 2."
    )
    assert (seconds_text(0.0123), seconds_text(2e-6), bytes_text(3 * 2**20), flops(3e12)) == (
        "12.3 ms",
        "2 µs",
        "3 MiB",
        "3 TFLOP",
    )


def test_devices_are_named_and_errors_say_what_is_there() -> None:
    with pytest.raises(DepthbenchError, match="unknown device 'h10', did you mean 'h100'"):
        find_device("h10")
    with pytest.raises(DepthbenchError, match="unknown dtype for device 'h100': 'int8'"):
        predict([SUM], find_device("h100"), "int8")
    assert BUILT_IN["h200"].bandwidth.best / BUILT_IN["h100"].bandwidth.best == pytest.approx(
        4.8 / 3.35
    )


def test_a_description_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "device.json"
    path.write_text(device().model_dump_json())
    assert read_device(path) == device()
    path.write_text(device().model_dump_json()[:-20])
    with pytest.raises(DepthbenchError, match=r"device .*cannot be read"):
        find_device(str(path))
    path.write_text('{"name": "x"}')
    with pytest.raises(DepthbenchError, match="is missing"):
        find_device(str(path))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bandwidth": {"points": [[1, 0]]}}, "a rate is 0"),
        ({"bandwidth": {"points": [[1, -2]]}}, "a value is below 0"),
        ({"attention": {"points": [[2, 1], [1, 1]]}}, "must be above 0 and rise"),
        ({"attention": {"points": [[0, 1]]}}, "must be above 0 and rise"),
        ({"products": {"bfloat16": {"points": [[1, 1]]}}}, "float32 is missing"),
        ({"units": 0}, "greater than or equal to 1"),
        ({"memory": 0}, "greater than 0"),
        ({"price_per_hour": -3}, "greater than or equal to 0"),
        ({"tiles": [{"rows": 8, "columns": 8, "share": 0}]}, "greater than 0"),
    ],
)
def test_a_description_that_makes_no_sense_is_refused(
    changes: dict[str, object], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "device.json"
    path.write_text(json.dumps(json.loads(device().model_dump_json()) | changes))
    with pytest.raises(DepthbenchError, match=said):
        find_device(str(path))


def test_a_split_gives_every_device_something() -> None:
    shape = Shape(layers=2, width=32, heads=4, kv_heads=2, ffn=64, vocab=64)
    Split(tensor=2, pipeline=2).check(shape)
    with pytest.raises(DepthbenchError, match="Use a divisor of 2"):
        Split(tensor=4).check(shape)
    with pytest.raises(DepthbenchError, match="the model has 2 blocks"):
        Split(pipeline=3).check(shape)


def test_sizes_stay_numbers_of_64_bits() -> None:
    check_sizes(2**23, 2**7)
    for context, batch in ((2**23 + 1, 1), (1, 2**20 + 1), (2**23, 2**8), (0, 1)):
        with pytest.raises(DepthbenchError, match="allowed"):
            check_sizes(context, batch)
