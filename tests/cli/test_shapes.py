import json

import pytest
import typer
from typer.testing import CliRunner

from depthbench.cli import designs, shapes
from depthbench.errors import DepthbenchError

app = typer.Typer()
shapes.register(app)
designs.register(app)


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["shapes", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def cells(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines()[1:]]


def test_published_family():
    assert cells(printed("--family", "400m")) == [
        ["16", "1216", "16", "16", "3248", "76", "76.0", "284.3M", "406.5M", "0"],
        ["20", "1120", "16", "16", "2992", "70", "56.0", "301.5M", "414.1M", "0"],
        ["24", "1024", "16", "16", "2736", "64", "42.7", "302.4M", "405.4M", "0"],
        ["28", "960", "16", "16", "2560", "60", "34.3", "309.7M", "406.2M", "0"],
        ["32", "896", "16", "16", "2400", "56", "28.0", "309.3M", "399.4M", "0"],
        ["42", "800", "16", "16", "2144", "50", "19.0", "323.7M", "404.2M", "0"],
        ["70", "640", "16", "16", "1712", "40", "9.1", "344.9M", "409.2M", "0"],
    ]


def test_one_million_within_one_percent():
    rows = cells(printed("--params", "1M", "--depths", "2,4,8,16"))
    assert [row[0] for row in rows] == ["2", "4", "8", "16"]
    for row in rows:
        total = int(row[8].replace(",", ""))
        assert abs(total - 1_000_000) <= 10_000
        assert float(row[-1].rstrip("%")) == pytest.approx((total / 1e6 - 1) * 100, abs=0.005)


def test_json_has_every_figure():
    arguments = ["--params", "1M", "--on", "backbone", "--aspect-ratios", "24", "--head-dim", "24"]
    arguments += ["--vocab", "99", "--design", "hc", "--tolerance", "0.02", "--json"]
    (row,) = json.loads(printed(*arguments))
    counted = row["backbone"] + row["own"]
    assert abs(counted - 1_000_000) <= 20_000
    assert row["error"] == pytest.approx(counted / 1e6 - 1, abs=1e-12)
    assert row["total"] == counted + 2 * 99 * row["width"]
    assert row["own"] == 2 * row["layers"] * (7 * row["width"] + 26)
    assert row["head_dim"] == 24
    assert row["aspect_ratio"] == row["width"] / row["layers"]


def test_a_family_counts_the_own_parameters_of_a_design():
    rows = json.loads(printed("--family", "200m", "--design", "sandwich", "--json"))
    assert [row["own"] for row in rows] == [2 * 24 * 672, 2 * 18 * 768, 2 * 12 * 896]
    assert all(row["error"] is None for row in rows)


def test_help_shows_the_default_and_an_example():
    text = printed("--help")
    assert "depthbench shapes --params 1M --depths 2,4,8,16" in text
    assert "257" in text


SOLVE = ["--params", "1M", "--depths", "2"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--params and --family are both missing"),
        (["--params", "1M"], "neither is given"),
        ([*SOLVE, "--aspect-ratios", "9"], "both are given"),
        (["--family", "400m", "--params", "1M"], "--family 400m and --params are both given"),
        (["--family", "400m", "--kv-heads", "2"], "--family 400m and --kv-heads are both given"),
        (["--family", "400"], "unknown family '400', did you mean '400m'?"),
        (["--family", ""], "unknown family ''"),
        (["--params", "abc", "--depths", "2"], "--params = 'abc' is no positive count"),
        (["--params", "0", "--depths", "2"], "--params = '0' is no positive whole number"),
        (["--params=-1M", "--depths", "2"], "--params = '-1M' is no positive count"),
        (["--params", "1M", "--depths", "2,x"], "--depths = '2,x': 'x' is no whole number"),
        (["--params", "1M", "--depths", "2,"], "--depths = '2,': '' is no whole number"),
        (["--params", "1M", "--aspect-ratios", "a"], "--aspect-ratios = 'a': 'a' is no number"),
        (["--params", "1M", "--depths", "2,-4"], "depths.1 = -4: "),
        ([*SOLVE, "--heads", "3", "--head-dim", "16"], "heads = 3 and head_dim = 16 are both"),
        ([*SOLVE, "--heads", "4", "--kv-heads", "3"], "heads = 4 is not divisible by kv_heads"),
        ([*SOLVE, "--tolerance", "0"], "tolerance = 0.0: "),
        ([*SOLVE, "--tolerance", "1"], "tolerance = 1.0: "),
        ([*SOLVE, "--on", "all"], "on = 'all': input should be 'total' or 'backbone'"),
        ([*SOLVE, "--design", "hcc"], "unknown design 'hcc', did you mean 'hc'?"),
        (["--family", "400m", "--design", "hcc"], "unknown design 'hcc', did you mean 'hc'?"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], message: str):
    result = CliRunner().invoke(app, ["shapes", *arguments])
    assert isinstance(result.exception, DepthbenchError)
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)
    assert result.stdout == ""


def test_a_word_for_a_number_is_refused():
    result = CliRunner().invoke(app, ["shapes", *SOLVE, "--heads", "many"])
    assert result.exit_code == 2
