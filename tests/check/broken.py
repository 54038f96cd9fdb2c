"""Designs that are wrong: each breaks what one law is about, as an implementation might."""

from abc import ABC
from typing import Any, ClassVar, final

import torch
from pydantic import create_model
from torch import Tensor, nn

from depthbench.designs.base import (
    Card,
    Connection,
    Design,
    DesignConfig,
    Fact,
    Route,
    Site,
    TensorDesign,
)
from depthbench.designs.prenorm import PreNormConnection
from depthbench.designs.streams import MixedStreamDesign, StreamRoute, mix_and_write_plain
from depthbench.nn.branch import Backbone, Context, Entry
from depthbench.nn.kernels import fast
from depthbench.nn.norm import RMSNorm
from depthbench.nn.parameters import Start, constant, normal_rows, values
from depthbench.shapes import Shape


def config(name: str, **options: Any) -> type[DesignConfig]:
    """Options of a design called ``name``."""
    fields: dict[str, Any] = {"name": (str, name)} | {k: (type(v), v) for k, v in options.items()}
    return create_model("BrokenConfig", __base__=DesignConfig, **fields)


def card(own: str = "0") -> Card:
    """A card with this formula for own parameters."""
    return Card(
        family="baseline",
        sources="state",
        weights="fixed",
        own=own,
        equation="h ← h + y",
        paper="none",
    )


class PreNormed(Connection[Tensor], ABC):
    """``x = N(h)``; what is written is each design's mistake."""

    def __init__(self, site: Site, shape: Shape, backbone: Backbone) -> None:
        super().__init__()
        self.site, self.shape = site, shape
        self.norm = RMSNorm(shape.width, backbone.norm_eps)

    def read(self, state: Tensor) -> tuple[Tensor, Route]:
        return self.norm(state), Route()

    def write(self, state: Tensor, y: Tensor, route: Route, entry: Entry | None) -> Tensor:
        return self.written(state, y)

    def written(self, state: Tensor, y: Tensor) -> Tensor:
        """As `prenorm` does."""
        return state + y


class OneStream(TensorDesign, ABC):
    """Connections of the class that ``At`` names."""

    At: ClassVar[type[PreNormed]]
    card: ClassVar[Card] = card()

    def connection(self, site: Site) -> PreNormed:
        return self.At(site, self.shape, self.backbone)


@final
class WrongFact(TensorDesign):
    """Its equation says 2 where it has 1; so does a number that is none."""

    Config = config("wrong_fact")
    card = card()

    def connection(self, site: Site) -> PreNormConnection:
        return PreNormConnection(self.shape, self.backbone)

    def facts(self) -> list[Fact]:
        return [Fact("skip in the written state", 1.0, 2.0)]


@final
class NoNumber(TensorDesign):
    """What it measures is no number."""

    Config = config("no_number")
    card = card()

    def connection(self, site: Site) -> PreNormConnection:
        return PreNormConnection(self.shape, self.backbone)

    def facts(self) -> list[Fact]:
        return [Fact("skip in the written state", float("nan"), 1.0)]


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
class KeepsAll(Connection[tuple[Tensor, ...]]):
    """The state is the tuple of all states so far."""

    def __init__(self, shape: Shape, backbone: Backbone) -> None:
        super().__init__()
        self.norm = RMSNorm(shape.width, backbone.norm_eps)

    def read(self, state: tuple[Tensor, ...]) -> tuple[Tensor, Route]:
        return self.norm(state[-1]), Route()

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
class FreeMix(Connection[Tensor]):
    """Mixes two streams by a matrix that nothing constrains."""

    def __init__(self, shape: Shape, backbone: Backbone) -> None:
        super().__init__()
        self.norm = RMSNorm(shape.width, backbone.norm_eps)
        self.mix = nn.Parameter(torch.empty(2, 2))

    def starts(self) -> dict[str, Start]:
        return {"mix": values([[1.0, 0.0], [0.0, 1.0]])}

    def read(self, state: Tensor) -> tuple[Tensor, StreamRoute]:
        write = torch.ones(2, dtype=state.dtype)
        return self.norm(state[:, :, 0]), StreamRoute(mix=self.mix, write=write)

    def write(self, state: Tensor, y: Tensor, route: StreamRoute, entry: Entry | None) -> Tensor:
        assert route.write is not None
        return mix_and_write_plain(state, route.mix, y, route.write)


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
class NaNMix(Connection[Tensor]):
    """The first matrix is in order, the second holds what is no number."""

    def __init__(self, number: int, shape: Shape, backbone: Backbone) -> None:
        super().__init__()
        self.wrong = number > 0
        self.norm = RMSNorm(shape.width, backbone.norm_eps)

    def read(self, state: Tensor) -> tuple[Tensor, StreamRoute]:
        mix = torch.eye(2, dtype=state.dtype)
        if self.wrong:
            mix[0, 0] = float("nan")
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

    def connection(self, site: Site) -> NaNMix:
        return NaNMix(site.number, self.shape, self.backbone)


@final
class ShowsNoMatrix(TensorDesign):
    """Claims a constraint on matrices that no route holds."""

    Config = config("shows_no_matrix")
    card = card()

    def mixing_error(self) -> float:
        return 1e-6

    def connection(self, site: Site) -> PreNormConnection:
        return PreNormConnection(self.shape, self.backbone)


@final
class Halved(PreNormed):
    def written(self, state: Tensor, y: Tensor) -> Tensor:
        return state + 0.5 * y


@final
class ClaimsPrenorm(OneStream):
    """Says that it starts as `prenorm`, but halves every output."""

    Config = config("claims_prenorm")
    start_distance = 0.0
    At = Halved


@final
class ScaledBranch(PreNormed):
    """Writes ``h + a ⊙ y``; how ``a`` starts is each design's mistake."""

    def __init__(self, site: Site, shape: Shape, backbone: Backbone) -> None:
        super().__init__(site, shape, backbone)
        self.scale = nn.Parameter(torch.empty(shape.width))

    def starts(self) -> dict[str, Start]:
        return {"scale": Start(lambda tensor, _: tensor.normal_(), decay=False)}

    def written(self, state: Tensor, y: Tensor) -> Tensor:
        return state + self.scale * y


@final
class IgnoresItsSeed(OneStream):
    """Draws a start from torch's global generator."""

    Config = config("ignores_its_seed")
    At = ScaledBranch
    card = card("2 L d")


@final
class InBuffer(PreNormed):
    """Keeps a constant in a buffer."""

    def __init__(self, site: Site, shape: Shape, backbone: Backbone) -> None:
        super().__init__(site, shape, backbone)
        self.register_buffer("factor", torch.full((), 0.5), persistent=False)

    def written(self, state: Tensor, y: Tensor) -> Tensor:
        return state + self.factor * y


@final
class ConstantInBuffer(OneStream):
    Config = config("constant_in_buffer")
    At = InBuffer


@final
class OutsideTheFile(PreNormed):
    """Draws a constant anew with every model: a file does not hold it."""

    built = 0

    def __init__(self, site: Site, shape: Shape, backbone: Backbone) -> None:
        super().__init__(site, shape, backbone)
        OutsideTheFile.built += 1
        self.factor = 1.0 + 1e-3 * OutsideTheFile.built

    def written(self, state: Tensor, y: Tensor) -> Tensor:
        return state + self.factor * y


@final
class ForgetsAConstant(OneStream):
    Config = config("forgets_a_constant")
    At = OutsideTheFile


@final
class Sandwiched(PreNormed):
    """Has a norm of ``d`` parameters that the card does not know."""

    def __init__(self, site: Site, shape: Shape, backbone: Backbone) -> None:
        super().__init__(site, shape, backbone)
        self.after = RMSNorm(shape.width, backbone.norm_eps)

    def written(self, state: Tensor, y: Tensor) -> Tensor:
        return state + self.after(y)


@final
class WrongCard(OneStream):
    Config = config("wrong_card")
    At = Sandwiched
    card = card("L d")


@final
class UnreadableCard(OneStream):
    Config = config("unreadable_card")
    At = Sandwiched
    card = card("two (a block")


@final
class UnknownSymbol(OneStream):
    Config = config("unknown_symbol")
    At = Sandwiched
    card = card("2 L width")


@final
class OnlyOnCPU(PreNormed):
    """Has a parameter that the meta device does not get."""

    def __init__(self, site: Site, shape: Shape, backbone: Backbone) -> None:
        super().__init__(site, shape, backbone)
        if not self.norm.gain.is_meta:
            self.extra = nn.Parameter(torch.ones(1))


@final
class DependsOnDevice(OneStream):
    Config = config("depends_on_device")
    At = OnlyOnCPU


@final
class ExtraProduct(PreNormed):
    """Multiplies every output by a matrix, and does not say so."""

    def __init__(self, site: Site, shape: Shape, backbone: Backbone) -> None:
        super().__init__(site, shape, backbone)
        self.matrix = nn.Parameter(torch.empty(shape.width, shape.width))

    def starts(self) -> dict[str, Start]:
        return {"matrix": normal_rows([(self.shape.width, 0.1)])}

    def written(self, state: Tensor, y: Tensor) -> Tensor:
        return state + nn.functional.linear(y, self.matrix)


@final
class HidesItsWork(OneStream):
    Config = config("hides_its_work")
    At = ExtraProduct
    card = card("2 L d²")


@final
class AsTheBranch(PreNormed):
    """Keeps the state in the format of the branch's output."""

    def written(self, state: Tensor, y: Tensor) -> Tensor:
        return (state + y).to(y.dtype)


@final
class RoundsItsState(OneStream):
    Config = config("rounds_its_state")
    At = AsTheBranch


@final
class SmallDifference(PreNormed):
    """A small difference of large numbers, which rounding eats."""

    def written(self, state: Tensor, y: Tensor) -> Tensor:
        return state + ((y + 100.0) - 100.0).to(state.dtype)


@final
class LosesDigits(OneStream):
    Config = config("loses_digits")
    At = SmallDifference


@final
class Unused(PreNormed):
    """Has a gate that it forgot to use."""

    def __init__(self, site: Site, shape: Shape, backbone: Backbone) -> None:
        super().__init__(site, shape, backbone)
        self.gate = nn.Parameter(torch.empty(()))

    def starts(self) -> dict[str, Start]:
        return {"gate": constant(1.0)}


@final
class ForgetsItsGate(OneStream):
    Config = config("forgets_its_gate")
    At = Unused
    card = card("2 L")


@final
class Uphill(TensorDesign):
    """Turns every gradient that enters it around, and lets the head see none of the tokens."""

    Config = config("uphill")
    card = card()

    def connection(self, site: Site) -> PreNormConnection:
        return PreNormConnection(self.shape, self.backbone)

    def readout(self, state: Tensor) -> Tensor:
        return 1e6 * (2 * state.detach() - state)


@final
class Growing(PreNormed):
    """Every site makes the state a thousand times larger."""

    def written(self, state: Tensor, y: Tensor) -> Tensor:
        return 1e3 * (state + y)


@final
class Explodes(OneStream):
    Config = config("explodes")
    At = Growing


@final
class SteepGradient(torch.autograd.Function):
    """The identity, with a gradient a thousand times too large."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return 1e3 * grads[0]


@final
class Steep(PreNormed):
    def written(self, state: Tensor, y: Tensor) -> Tensor:
        return SteepGradient.apply(state + y)  # pyright: ignore[reportReturnType]


@final
class ExplodesBackwards(OneStream):
    """Its states are in order, its gradients grow without bound."""

    Config = config("explodes_backwards")
    At = Steep


BROKEN: dict[str, list[tuple[type[Design[Any]], str]]] = {
    "facts": [
        (WrongFact, "skip in the written state: 1, but must be 2"),
        (NoNumber, "skip in the written state: nan, but must be 1"),
    ],
    "causality": [(LooksAhead, "logits before a changed token")],
    "batch": [(TouchesNeighbours, "a sequence in a batch and alone")],
    "programs": [
        (CountsOnAllSites, "IndexError: tuple index out of range (broken.py, line "),
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
        (ShowsNoMatrix, "no route holds a mixing matrix"),
    ],
    "start": [(ClaimsPrenorm, "distance to prenorm")],
    "seeds": [(IgnoresItsSeed, "attention_connection.scale differs between two builds")],
    "saving": [
        (ConstantInBuffer, "a buffer holds a constant"),
        (ForgetsAConstant, "the loaded model gives other logits"),
    ],
    "parameters": [
        (WrongCard, "the card says L d = 96, but the design adds 192"),
        (UnreadableCard, "own = 'two (a block' is no formula"),
        (UnknownSymbol, "own = '2 L width' is no formula"),
        (DependsOnDevice, "22694 parameters in a real model, 22688 on the meta device"),
    ],
    "operations": [(HidesItsWork, "424,320 operations are stated, torch's counter sees 547,200")],
    "precision": [
        (RoundsItsState, "a depth state is torch.bfloat16 under autocast"),
        (LosesDigits, "logits under bfloat16 autocast"),
    ],
    "training": [
        (ForgetsItsGate, "never moved in 20 steps: blocks.0.attention_connection.gate, "),
        (Uphill, "loss after 20 steps over the first"),
    ],
    "signal": [
        (Explodes, "the state at depth "),
        (ExplodesBackwards, "the gradient at depth "),
    ],
}
"""By law: designs that break it, and what the finding says. For `compiling` see ``own/``."""
