import math
from typing import Any

import pytest

from depthbench.designs import REGISTRY
from depthbench.errors import DepthbenchError
from depthbench.nn.count import count_parameters
from depthbench.nn.model import ModelConfig
from depthbench.solve import FFN_BAND, Solved, solve_shapes


def recount(solved: Solved, design: Any = "prenorm") -> tuple[int, int]:
    """Total, and what a budget on `backbone` counts, of a model built anew."""
    counts = count_parameters(ModelConfig.parse({"shape": solved.shape, "design": design}))
    assert counts == solved.parameters
    return counts.total, counts.total - counts.embedding_and_head


def test_the_family_of_the_studies():
    solved = solve_shapes(500_000, depths=[2, 4, 8, 16], vocab=257)
    assert [(s.shape.layers, s.shape.width, s.shape.heads) for s in solved] == [
        (2, 136, 4),
        (4, 96, 4),
        (8, 72, 4),
        (16, 48, 3),
    ]
    for one in solved:
        total, _ = recount(one)
        assert abs(total - 500_000) <= 2500  # half the tolerance: multiples of 2 are fine enough
        assert one.error == pytest.approx(total / 500_000 - 1, abs=1e-12)
        assert abs(one.shape.ffn / one.shape.width / (8 / 3) - 1) <= FFN_BAND
        assert 16 <= one.shape.head_dim <= 34


@pytest.mark.parametrize("design", REGISTRY)
def test_own_parameters_count(design: str):
    for one in solve_shapes("300k", depths=[3, 7], vocab=99, design=design):
        total, _ = recount(one, design)
        assert abs(total - 300_000) <= 3000
        assert one.shape.head_dim % 2 == 0


def test_design_options_count():
    wide = {"name": "mhc", "streams": 8}
    (solved,) = solve_shapes("300k", depths=[4], design=wide)
    total, _ = recount(solved, wide)
    assert abs(total - 300_000) <= 3000
    assert solved.parameters.own > 50_000


@pytest.mark.parametrize("design", ["prenorm", "moda"])
def test_budget_on_backbone_leaves_out_embedding_and_head_only(design: str):
    (solved,) = solve_shapes("2M", depths=[6], on="backbone", vocab=50280, design=design)
    total, counted = recount(solved, design)
    assert abs(counted - 2_000_000) <= 20_000
    assert total - counted == 2 * 50280 * solved.shape.width


def test_published_shape_comes_out_of_the_rule():
    (solved,) = solve_shapes("405M", aspect_ratios=[76], heads=16, vocab=50280)
    assert (solved.shape.layers, solved.shape.width, solved.shape.ffn) == (16, 1216, 3248)
    assert solved.parameters.total == 406_534_336
    assert solved.error == pytest.approx(1_534_336 / 405e6, abs=1e-12)


def test_aspect_ratios_choose_the_depth():
    solved = solve_shapes("500k", aspect_ratios=[68, 24, 9, 3])
    assert [s.shape.layers for s in solved] == [2, 4, 8, 16]
    for one, asked in zip(solved, [68, 24, 9, 3], strict=True):
        assert one.shape.aspect_ratio == pytest.approx(asked, rel=0.01)


def test_heads_head_width_and_kv_heads_are_kept():
    (by_heads,) = solve_shapes("1M", depths=[4], heads=8, kv_heads=2)
    assert (by_heads.shape.heads, by_heads.shape.kv_heads) == (8, 2)
    (by_width,) = solve_shapes("1M", depths=[4], head_dim=24, kv_heads=1)
    assert (by_width.shape.head_dim, by_width.shape.kv_heads) == (24, 1)
    (by_kv,) = solve_shapes("1M", depths=[4], kv_heads=3)
    assert by_kv.shape.kv_heads == 3
    assert by_kv.shape.heads % 3 == 0
    for one in (by_heads, by_width, by_kv):
        assert abs(recount(one)[0] - 1_000_000) <= 10_000


def test_widths_are_multiples_of_8_where_the_ffn_takes_up_the_rest():
    (large,) = solve_shapes("30M", depths=[2])
    assert (large.shape.width, large.shape.head_dim) == (1088, 64)  # 1116 is nearer to the rule
    (narrow,) = solve_shapes("200k", depths=[12])
    assert (narrow.shape.width, narrow.shape.head_dim) == (36, 18)  # neither 32 nor 40 can


def test_ffn_ratio_and_tolerance_are_kept():
    (solved,) = solve_shapes("1M", depths=[4], ffn_ratio=4, tolerance=0.001)
    assert abs(recount(solved)[0] - 1_000_000) <= 1000
    assert 4 * (1 - FFN_BAND) <= solved.shape.ffn / solved.shape.width <= 4 * (1 + FFN_BAND)
    assert solved.shape.width % 8 == 0


def test_impossible_budget_names_a_count_that_can_be_reached():
    with pytest.raises(DepthbenchError) as caught:
        solve_shapes("100k", depths=[2], vocab=50280)
    assert "params = 100,000 (total, prenorm): no shape of 2 layers is within 1 %" in str(
        caught.value
    )
    assert "The nearest has 201,222 (width 2, ffn 5, 201,120 of them" in str(caught.value)
    assert "Ask for 201222" in str(caught.value)
    (solved,) = solve_shapes(201_222, depths=[2], vocab=50280)
    assert recount(solved)[0] == 201_222


def test_heads_that_leave_no_width_are_named():
    with pytest.raises(DepthbenchError, match="Ask for 718016, leave heads free"):
        solve_shapes("500k", depths=[16], heads=16)
    (solved,) = solve_shapes(718_016, depths=[16], heads=16)
    assert recount(solved)[0] == 718_016
    with pytest.raises(DepthbenchError, match="no width has heads that fit kv_heads = 4000"):
        solve_shapes("500k", depths=[2], kv_heads=4000)


def test_aspect_ratio_out_of_reach_is_named():
    with pytest.raises(DepthbenchError, match="aspect_ratios = 1000: with 500,000 parameters"):
        solve_shapes("500k", aspect_ratios=[1000])
    with pytest.raises(DepthbenchError, match=r"9 and 9\.2 both come to 8 layers"):
        solve_shapes("500k", aspect_ratios=[9, 9.2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"params": -5}, "params = -5: "),
        ({"params": 0}, "params = 0: "),
        ({"params": "many"}, "params = 'many' is no positive count"),
        ({"params": 10**13}, "params = 10000000000000: input should be less than or equal"),
        ({"depths": [4, 0]}, "depths.1 = 0: input should be greater than or equal to 1"),
        ({"depths": [-2]}, "depths.0 = -2: "),
        ({"depths": [10**9]}, "depths.0 = 1000000000: input should be less than or equal to 1024"),
        ({"depths": []}, "depths = []: name at least one"),
        ({"depths": [4, 4]}, "depths = [4, 4]: name at least one, and each once"),
        ({"depths": None}, "give either depths or aspect_ratios: neither is given"),
        ({"aspect_ratios": [9.0]}, "give either depths or aspect_ratios: both are given"),
        ({"depths": None, "aspect_ratios": [-1.0]}, "aspect_ratios.0 = -1.0: "),
        ({"depths": None, "aspect_ratios": [math.inf]}, "aspect_ratios.0 = inf: "),
        ({"heads": 0}, "heads = 0: "),
        ({"heads": 6, "kv_heads": 4}, "heads = 6 is not divisible by kv_heads = 4"),
        ({"heads": 4, "head_dim": 16}, "heads = 4 and head_dim = 16 are both given"),
        ({"head_dim": 15}, "head_dim = 15 is odd and RoPE needs pairs. Use 16"),
        ({"vocab": 1}, "vocab = 1: "),
        ({"on": "backbon"}, "on = 'backbon': input should be 'total' or 'backbone'"),
        ({"tolerance": 0.0}, "tolerance = 0.0: input should be greater than 0"),
        ({"tolerance": 1.0}, "tolerance = 1.0: input should be less than 1"),
        ({"tolerance": math.nan}, "tolerance = nan: "),
        ({"ffn_ratio": -1.0}, "ffn_ratio = -1.0: "),
        ({"design": "prenrom"}, "unknown design 'prenrom', did you mean 'prenorm'?"),
        ({"design": {"name": "hc", "stream": 2}}, "unknown key 'stream', did you mean 'streams'?"),
    ],
)
def test_bad_requests_are_refused_in_one_line(change: dict[str, Any], message: str):
    request: dict[str, Any] = {"params": "500k", "depths": [4]} | change
    with pytest.raises(DepthbenchError) as caught:
        solve_shapes(**request)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
