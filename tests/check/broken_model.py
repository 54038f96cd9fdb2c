"""Designs whose claims, start, format or counts are wrong: each breaks what one law is about."""

from typing import Any, final

import torch
from torch import Tensor, nn

from depthbench.designs.base import Design, Fact, Site, TensorDesign
from depthbench.designs.prenorm import PreNormConnection
from depthbench.nn.branch import Backbone
from depthbench.nn.norm import RMSNorm
from depthbench.nn.parameters import Start, constant, normal_rows
from depthbench.shapes import Shape
from tests.check.pieces import OneStream, PreNormed, card, config


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


WRONG_MODEL: dict[str, list[tuple[type[Design[Any]], str]]] = {
    "facts": [
        (WrongFact, "skip in the written state: 1, but must be 2"),
        (NoNumber, "skip in the written state: nan, but must be 1"),
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
"""By law: designs that break it, and what the finding says."""
