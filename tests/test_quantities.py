"""Amounts as typed and as shown."""

import pytest

from depthbench.errors import DepthbenchError
from depthbench.quantities import bytes_text, count_text, parse_bytes, parse_seconds, seconds_text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GiB", 2**31),
        ("80 GB", 80 * 10**9),
        ("1.5kib", 1536),
        ("4096B", 4096),
        (" 512MiB ", 2**29),
        ("1TiB", 2**40),
        (".5MB", 500_000),
    ],
)
def test_bytes(text: str, size: int) -> None:
    assert parse_bytes(text, "max-kv") == size


@pytest.mark.parametrize(
    "text", ["", "2", "2G", "GiB", "-1GiB", "0GiB", "0.1B", "2Gib!", "1e3B", "9" * 400 + "GB"]
)
def test_no_bytes(text: str) -> None:
    with pytest.raises(DepthbenchError) as error:
        parse_bytes(text, "max-kv")
    assert str(error.value).startswith(f"max-kv = '{text}' is no amount of memory. Allowed: ")
    assert str(error.value).endswith("Write it like 2GiB or 500MB")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("20ms", 0.02),
        ("1.5 s", 1.5),
        ("300us", 3e-4),
        ("300µs", 3e-4),
        ("2min", 120.0),
        ("1h", 3600.0),
    ],
)
def test_seconds(text: str, seconds: float) -> None:
    assert parse_seconds(text, "max-tpot") == pytest.approx(seconds, rel=1e-15)


@pytest.mark.parametrize("text", ["", "20", "ms", "-1s", "0ms", "1 fortnight", "20 MS"])
def test_no_seconds(text: str) -> None:
    with pytest.raises(DepthbenchError) as error:
        parse_seconds(text, "max-tpot")
    assert str(error.value).startswith(f"max-tpot = '{text}' is no time. Allowed: ")


def test_shown() -> None:
    assert [bytes_text(x) for x in (300, 1023, 2**21, 1.5 * 2**30, 2**51)] == [
        "300 B",
        "0.999 KiB",
        "2 MiB",
        "1.5 GiB",
        "2048 TiB",
    ]
    assert [seconds_text(x) for x in (3e-4, 0.02, 0.99999, 1.5, 119, 600, 7200)] == [
        "300 µs",
        "20 ms",
        "1 s",
        "1.5 s",
        "119 s",
        "10 min",
        "2 h",
    ]
    assert [count_text(x) for x in (960, 999_999, 4e8, 1.5e9, 1.234e13, 2e18)] == [
        "960",
        "1M",
        "400M",
        "1.5B",
        "12.3T",
        "2E",
    ]
