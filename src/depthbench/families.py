"""The published families of shapes, by name (arXiv 2609.32534).

Of the 50 counts printed there, in millions, the model's own round to 48. The other two are in
`500m`: 504.53 in all at 26 layers (printed 504), and a backbone of 368.54 at 17 layers (printed
368). Leaving the norms out would give these two, but no longer the 407 of `400m` at 16 layers.
"""

from typing import NamedTuple

from depthbench.errors import unknown
from depthbench.shapes import Shape, rule_ffn

VOCAB = 50280
"""Vocabulary of every published shape."""
HEADS = 16


class _Published(NamedTuple):
    sizes: tuple[tuple[int, int], ...]
    """(layers, width) of each shape."""
    kv_heads: int = HEADS
    ffn_is_triple: bool = False
    """``ffn = 3 · width``; otherwise 8/3 of the width, rounded up to a multiple of 16."""


FAMILIES = {
    "400m": _Published(
        ((16, 1216), (20, 1120), (24, 1024), (28, 960), (32, 896), (42, 800), (70, 640))
    ),
    "300m-backbone": _Published(
        ((16, 1248), (24, 1024), (32, 896), (42, 768), (70, 608), (84, 544))
    ),
    "200m": _Published(((24, 672), (18, 768), (12, 896))),
    "300m": _Published(((28, 800), (21, 896), (14, 1056))),
    "500m": _Published(((34, 992), (26, 1120), (17, 1344))),
    "1600m": _Published(((28, 2048), (40, 1728), (54, 1504)), kv_heads=8, ffn_is_triple=True),
}


def family(name: str) -> tuple[Shape, ...]:
    """The shapes of a published family, in the published order.

    Raises `DepthbenchError` with the nearest name for a family that is not published.
    """
    if name not in FAMILIES:
        raise unknown("family", name, FAMILIES)
    published = FAMILIES[name]
    return tuple(
        Shape(
            layers=layers,
            width=width,
            heads=HEADS,
            kv_heads=published.kv_heads,
            ffn=3 * width if published.ffn_is_triple else rule_ffn(width),
            vocab=VOCAB,
        )
        for layers, width in published.sizes
    )
