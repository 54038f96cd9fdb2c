import pytest

from depthbench.config import Frozen
from depthbench.errors import DepthbenchError
from depthbench.shapes import Shape, parse_count, rule_ffn

SIZES = {"layers": 3, "width": 48, "heads": 6, "kv_heads": 2, "ffn": 128, "vocab": 99}


def test_derived_sizes():
    shape = Shape.parse(SIZES)
    assert shape.head_dim == 8
    assert shape.aspect_ratio == 16.0
    assert shape.sites == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 50}, "width 50 is not divisible by heads 6. Use a width that is a multiple"),
        ({"width": 42}, "head width 7 (width 42 / heads 6) is odd"),
        ({"kv_heads": 4}, "heads 6 is not divisible by kv_heads 4. Use a divisor of heads"),
        ({"width": -48}, "width = -48: input should be greater than or equal to 2"),
        ({"layers": 0}, "layers = 0: input should be greater than or equal to 1"),
        ({"ffn": 0}, "ffn = 0: "),
        ({"vocab": "many"}, "vocab = 'many': input should be a valid integer"),
        ({"layer": 3}, "unknown key 'layer', did you mean 'layers'?"),
    ],
)
def test_bad_sizes_are_refused_in_one_line(change: dict[str, object], message: str):
    with pytest.raises(DepthbenchError) as caught:
        Shape.parse(SIZES | change)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_shape_is_immutable():
    assert issubclass(Shape, Frozen)
    with pytest.raises(ValueError, match="frozen"):
        Shape.parse(SIZES).width = 64


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("400M", 400_000_000),
        ("1.5B", 1_500_000_000),
        ("0.29m", 290_000),
        ("500k", 500_000),
        (" 500 K ", 500_000),
        ("1_000_000", 1_000_000),
        ("7", 7),
    ],
)
def test_parse_count(text: str, count: int):
    assert parse_count(text) == count


@pytest.mark.parametrize(
    "text", ["", "M", "-5", "-400M", "0", "0M", "0.5", "1.2345k", "4OOM", "1e6", "1T", "inf", "1.k"]
)
def test_parse_count_refuses(text: str):
    with pytest.raises(DepthbenchError) as caught:
        parse_count(text, "--params")
    assert str(caught.value).startswith(f"--params = '{text}' is no positive ")
    assert "400M" in str(caught.value)


def test_rule_ffn_rounds_up_and_keeps_exact_multiples():
    assert rule_ffn(1216) == 3248  # 3242.67
    assert rule_ffn(1248) == 3328  # 3328 exactly
    assert rule_ffn(72, multiple=1) == 192
    assert rule_ffn(73, multiple=1) == 195  # 194.67
