import pytest

from depthbench.errors import DepthbenchError
from depthbench.families import FAMILIES, VOCAB, family
from depthbench.nn.count import count_parameters
from depthbench.nn.model import ModelConfig

# layers, width, ffn, heads, kv_heads, backbone and total in millions (arXiv 2609.32534)
PUBLISHED = {
    "400m": [
        (16, 1216, 3248, 16, 16, 284, 407),
        (20, 1120, 2992, 16, 16, 301, 414),
        (24, 1024, 2736, 16, 16, 302, 405),
        (28, 960, 2560, 16, 16, 310, 406),
        (32, 896, 2400, 16, 16, 309, 399),
        (42, 800, 2144, 16, 16, 324, 404),
        (70, 640, 1712, 16, 16, 345, 409),
    ],
    "300m-backbone": [
        (16, 1248, 3328, 16, 16, 299, 425),
        (24, 1024, 2736, 16, 16, 302, 405),
        (32, 896, 2400, 16, 16, 309, 399),
        (42, 768, 2048, 16, 16, 297, 375),
        (70, 608, 1632, 16, 16, 312, 373),
        (84, 544, 1456, 16, 16, 299, 354),
    ],
    "200m": [
        (24, 672, 1792, 16, 16, 130, 198),
        (18, 768, 2048, 16, 16, 127, 205),
        (12, 896, 2400, 16, 16, 116, 206),
    ],
    "300m": [
        (28, 800, 2144, 16, 16, 216, 296),
        (21, 896, 2400, 16, 16, 203, 293),
        (14, 1056, 2816, 16, 16, 187, 294),
    ],
    "500m": [
        (34, 992, 2656, 16, 16, 403, 502),
        (26, 1120, 2992, 16, 16, 392, 504),
        (17, 1344, 3584, 16, 16, 368, 504),
    ],
    "1600m": [
        (28, 2048, 6144, 16, 8, 1409, 1615),
        (40, 1728, 5184, 16, 8, 1433, 1607),
        (54, 1504, 4512, 16, 8, 1466, 1617),
    ],
}

# exact counts just above a half million that are printed rounded down
PRINTED_LOW = {504_525_280: 504, 368_539_584: 368}


def printed(count: int) -> int:
    return PRINTED_LOW.get(count, round(count / 1e6))


def test_25_shapes_are_published():
    assert sum(map(len, PUBLISHED.values())) == 25
    assert list(FAMILIES) == list(PUBLISHED)
    assert VOCAB == 50280


@pytest.mark.parametrize("name", PUBLISHED)
def test_sizes_and_counts_agree_with_the_published_ones(name: str):
    for shape, (*sizes, backbone, total) in zip(family(name), PUBLISHED[name], strict=True):
        counts = count_parameters(ModelConfig.parse({"shape": shape, "design": "prenorm"}))
        assert [shape.layers, shape.width, shape.ffn, shape.heads, shape.kv_heads] == sizes
        assert shape.vocab == VOCAB
        assert counts.own == 0
        assert (printed(counts.backbone), printed(counts.total)) == (backbone, total)


def test_unknown_family_names_the_nearest():
    with pytest.raises(DepthbenchError, match="unknown family '400M', did you mean '400m'"):
        family("400M")
