"""Ways to merge streams, by name."""

from depthbench.errors import unknown
from depthbench.streams.merge.copies import Copies
from depthbench.streams.merge.fade import Fade
from depthbench.streams.merge.projection import Projection
from depthbench.streams.merge.way import Way
from depthbench.streams.merge.weight import Weight

WAYS: dict[str, type[Way]] = {one.name: one for one in (Copies, Weight, Projection, Fade)}


def way_class(name: str) -> type[Way]:
    """The way called ``name``; raises `DepthbenchError` for another name."""
    if name not in WAYS:
        raise unknown("way", name, WAYS)
    return WAYS[name]
