"""Merging streams that are equal or proportional: nothing is lost, nothing is trained."""

from typing import ClassVar, final

from depthbench.errors import DepthbenchError
from depthbench.nn.model import Model
from depthbench.streams.merge.plan import PROPORTIONAL, fewer_of, with_fewer
from depthbench.streams.merge.way import Merging, Way


@final
class Copies(Way):
    """Closed form: ``H_j = e H_i`` at every site, so that ``α' = Eᵀ α`` and its like are exact."""

    name: ClassVar[str] = "copies"
    title: ClassVar[str] = "closed form"
    definition: ClassVar[str] = (
        "streams that are multiples of each other at every site are one; coefficients are added up"
    )

    def merge(self, merging: Merging) -> tuple[Model, list[float]]:
        far = merging.alike.farthest
        for one, other in merging.into.items():
            if far[one, other] > PROPORTIONAL:
                raise DepthbenchError(
                    f"streams {one} and {other} are no multiples of each other: "
                    f"{far[one, other]:.1e} of the squares is left, {PROPORTIONAL:.0e} is allowed. "
                    "Merge with --way weight, projection or fade"
                )
        return with_fewer(merging.model, fewer_of(merging.alike, merging.into)), []
