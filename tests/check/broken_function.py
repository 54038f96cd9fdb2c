"""Designs whose function is wrong: each breaks what one law is about, as implementations do."""

from typing import Any, final

import torch
from torch import Tensor, nn

from depthbench.designs.base import Connection, Design, Route, Site, TensorConnection, TensorDesign
from depthbench.designs.prenorm import PreNormConnection
from depthbench.designs.streams import MixedStreamDesign, StreamRoute, mix_and_write_plain
from depthbench.nn.branch import Backbone, Context, Entry
from depthbench.nn.kernels import fast
from depthbench.nn.norm import RMSNorm
from depthbench.nn.parameters import Start, values
from depthbench.nn.work import Work
from depthbench.shapes import Shape
from tests.check.pieces import OneStream, PreNormed, card, config


@final
class MeanOverTime(PreNormed):
    """Adds the mean over the whole sequence."""

    def written(self, state: Tensor, y: Tensor) -> Tensor:
        return state + y + y.mean(1, keepdim=True)


@final
class LooksAhead(OneStream):
    Config = config("looks_ahead")
    At = MeanOverTime


@final
class MeanOverBatch(PreNormed):
    """Adds the mean over the batch."""

    def written(self, state: Tensor, y: Tensor) -> Tensor:
        return state + y + y.mean(0, keepdim=True)


@final
class TouchesNeighbours(OneStream):
    Config = config("touches_neighbours")
    At = MeanOverBatch


@final
class BatchTurned(PreNormed):
    """Adds what the sequence at the mirrored place wrote: the middle of three keeps its own."""

    def written(self, state: Tensor, y: Tensor) -> Tensor:
        return state + y.flip(0)


@final
class TouchesTheMirrored(OneStream):
    Config = config("touches_the_mirrored")
    At = BatchTurned


@final
class KeepsAll(Connection[tuple[Tensor, ...]]):
    """The state is the tuple of all states so far."""

    def __init__(self, shape: Shape, backbone: Backbone) -> None:
        super().__init__()
        self.norm = RMSNorm(shape.width, backbone.norm_eps)

    def read(self, state: tuple[Tensor, ...]) -> tuple[Tensor, Route]:
        return self.norm(state[-1]), Route()

    def mixed(self, state: tuple[Tensor, ...], route: Route) -> Tensor:
        return state[-1]

    def write(
        self, state: tuple[Tensor, ...], y: Tensor, route: Route, entry: Entry | None
    ) -> tuple[Tensor, ...]:
        return (*state, state[-1] + y)


@final
class CountsOnAllSites(Design[tuple[Tensor, ...]]):
    """Reads out what the last site of the whole model wrote, which a program may leave out."""

    Config = config("counts_on_all_sites")
    card = card()

    def connection(self, site: Site) -> KeepsAll:
        return KeepsAll(self.shape, self.backbone)

    def open(self, embedding: Tensor, context: Context) -> tuple[Tensor, ...]:
        return (embedding,)

    def readout(self, state: tuple[Tensor, ...]) -> Tensor:
        return state[self.shape.sites]

    def depth_state(self, state: tuple[Tensor, ...]) -> Tensor:
        return state[-1]


@final
class DropsOne(PreNormed):
    """Forgets the output of site 3."""

    def written(self, state: Tensor, y: Tensor) -> Tensor:
        return state if self.site.number == 3 else state + y


@final
class IgnoresOneBranch(OneStream):
    Config = config("ignores_one_branch")
    At = DropsOne


@final
class HalfGradientWhereFast(PreNormed):
    """The fast version's backward is wrong: half of the gradient is lost."""

    def written(self, state: Tensor, y: Tensor) -> Tensor:
        return state + (0.5 * y + 0.5 * y.detach() if fast(y) else y)


@final
class WrongBackward(OneStream):
    Config = config("wrong_backward")
    At = HalfGradientWhereFast


@final
class MeanOfPast(PreNormed):
    """Adds the causal mean of the tokens at hand: those before, in the cache, are forgotten."""

    def written(self, state: Tensor, y: Tensor) -> Tensor:
        count = torch.arange(1, y.shape[1] + 1, dtype=y.dtype).unsqueeze(-1)
        return state + y + y.cumsum(1) / count


@final
class WithoutMemory(OneStream):
    Config = config("without_memory")
    At = MeanOfPast


@final
class InPlace(PreNormed):
    """Adds to the state itself, which recomputing then finds changed."""

    def read(self, state: Tensor) -> tuple[Tensor, Route]:
        return self.norm(state.clone()), Route()

    def written(self, state: Tensor, y: Tensor) -> Tensor:
        return state.add_(y)


@final
class ChangesItsState(OneStream):
    Config = config("changes_its_state")
    At = InPlace


@final
class EveryOtherTime(PreNormed):
    """Goes by how often it was called, which recomputing adds to."""

    def __init__(self, site: Site, shape: Shape, backbone: Backbone) -> None:
        super().__init__(site, shape, backbone)
        self.calls = 0

    def written(self, state: Tensor, y: Tensor) -> Tensor:
        self.calls += 1
        return state + (y if self.calls % 2 else 1.01 * y)


@final
class CountsItsCalls(OneStream):
    Config = config("counts_its_calls")
    At = EveryOtherTime


@final
class FreeMix(TensorConnection):
    """Mixes two streams by a matrix of any positive numbers."""

    def __init__(self, shape: Shape, backbone: Backbone) -> None:
        super().__init__()
        self.norm = RMSNorm(shape.width, backbone.norm_eps)
        self.mix = nn.Parameter(torch.empty(2, 2))

    def starts(self) -> dict[str, Start]:
        return {"mix": values([[1.0, 0.0], [0.0, 1.0]])}

    def read(self, state: Tensor) -> tuple[Tensor, StreamRoute]:
        write = torch.ones(2, dtype=state.dtype)
        return self.norm(state[:, :, 0]), StreamRoute(mix=self.mix.abs(), write=write)

    def write(self, state: Tensor, y: Tensor, route: StreamRoute, entry: Entry | None) -> Tensor:
        assert route.write is not None
        return mix_and_write_plain(state, route.mix, y, route.write)

    def work(self, length: int) -> Work:
        return Work(products=2 * length * 2 * 2 * self.norm.gain.numel())


@final
class ClaimsConstraint(MixedStreamDesign):
    """Says that its rows and columns add up to 1."""

    Config = config("claims_constraint", streams=2)
    card = card("2 L m²")

    def mixing_error(self) -> float:
        return 1e-6

    def connection(self, site: Site) -> FreeMix:
        return FreeMix(self.shape, self.backbone)


@final
class FixedMix(TensorConnection):
    """The first matrix is in order, the others have the rows ``a b`` and ``b a``."""

    def __init__(
        self, number: int, rows: tuple[float, float], shape: Shape, backbone: Backbone
    ) -> None:
        super().__init__()
        self.rows = rows if number > 0 else (1.0, 0.0)
        self.norm = RMSNorm(shape.width, backbone.norm_eps)

    def read(self, state: Tensor) -> tuple[Tensor, StreamRoute]:
        mix = torch.tensor([self.rows, self.rows[::-1]], dtype=state.dtype)
        return self.norm(state[:, :, 0]), StreamRoute(mix=mix)

    def write(self, state: Tensor, y: Tensor, route: StreamRoute, entry: Entry | None) -> Tensor:
        return state + y.unsqueeze(2)


@final
class MixesByNaN(MixedStreamDesign):
    """Claims a constraint, and what it shows as its matrices is no number."""

    Config = config("mixes_by_nan", streams=2)
    card = card()

    def mixing_error(self) -> float:
        return 1e-6

    def connection(self, site: Site) -> FixedMix:
        return FixedMix(site.number, (float("nan"), 0.0), self.shape, self.backbone)


@final
class MixesBelowZero(MixedStreamDesign):
    """Rows and columns that add up to 1, of entries that are no shares."""

    Config = config("mixes_below_zero", streams=2)
    card = card()

    def mixing_error(self) -> float:
        return 1e-6

    def connection(self, site: Site) -> FixedMix:
        return FixedMix(site.number, (1.5, -0.5), self.shape, self.backbone)


@final
class ShowsNoMatrix(TensorDesign):
    """Claims a constraint on matrices that no route holds."""

    Config = config("shows_no_matrix")
    card = card()

    def mixing_error(self) -> float:
        return 1e-6

    def connection(self, site: Site) -> PreNormConnection:
        return PreNormConnection(self.shape, self.backbone)


WRONG_FUNCTION: dict[str, list[tuple[type[Design[Any]], str]]] = {
    "causality": [(LooksAhead, "logits before a changed token")],
    "batch": [
        (TouchesNeighbours, "a sequence in a batch and alone"),
        (TouchesTheMirrored, "a sequence in a batch and alone"),
    ],
    "programs": [
        (CountsOnAllSites, "IndexError: tuple index out of range (broken_function.py, line "),
    ],
    "taps": [(IgnoresOneBranch, "the branch of site 3 has no effect on the logits")],
    "kernels": [(WrongBackward, "largest for ")],
    "decoding": [(WithoutMemory, "cached and full logits")],
    "checkpointing": [
        (ChangesItsState, "modified by an inplace operation"),
        (CountsItsCalls, "gradients with and without recomputation"),
    ],
    "mixing": [
        (ClaimsConstraint, "largest row or column error"),
        (MixesByNaN, "not finite"),
        (MixesBelowZero, "an entry below 0"),
        (ShowsNoMatrix, "no route holds a mixing matrix"),
    ],
}
"""By law: designs that break it, and what the finding says."""
