"""How signal and gradient travel through depth at the start: the design's init card."""

import itertools
import math
from functools import lru_cache

import torch
from torch import Tensor, nn

from depthbench.check.law import Outcome, broken, held
from depthbench.check.subject import SMALL, Subject, tokens_of
from depthbench.config import Frozen
from depthbench.nn.block import Trace
from depthbench.nn.model import Model
from depthbench.shapes import Shape

DEPTHS = (2, 16, 64, 256)
WIDE = Shape(layers=2, width=32, heads=2, kv_heads=2, ffn=64, vocab=SMALL.vocab)


class Signal(Frozen):
    """One depth's card, in float64; lists go from the bottom to the top, None = not finite."""

    layers: int
    forward: list[float | None]
    """Variance of the depth states ``z_0 … z_L``."""
    backward: list[float | None]
    """Mean square of the loss's gradient by the branch outputs of every block."""
    gradient: list[float | None]
    """Norm of the loss's gradient by the parameters of every block."""

    @property
    def forward_growth(self) -> float | None:
        """Variance at the top over the bottom; None where the bottom has none."""
        return _over(self.forward[-1], self.forward[0])

    @property
    def backward_ratio(self) -> float | None:
        """Gradient by branch outputs, bottom over top; None where the top has none."""
        return _over(self.backward[0], self.backward[-1])

    @property
    def gradient_ratio(self) -> float | None:
        """Gradient by parameters, bottom over top; None where the top has none."""
        return _over(self.gradient[0], self.gradient[-1])


@lru_cache(maxsize=len(DEPTHS))
def signal_at(subject: Subject, layers: int) -> Signal:
    """Measured on one fresh model, a batch of random tokens and their next-token loss."""
    shape = WIDE.model_copy(update={"layers": layers})
    model = Model.build(subject.config(shape), seed=0, dtype=torch.float64)
    tokens, trace = tokens_of(length=17), Trace()
    outputs: list[Tensor] = []

    def collect(_: int, __: Tensor, y: Tensor) -> Tensor:
        outputs.append(y)
        return y

    logits = model(tokens[:, :-1], tap=collect, trace=trace)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    parameters = [list(block.parameters()) for block in model.blocks]
    every = [*outputs, *itertools.chain.from_iterable(parameters)]
    found = iter(torch.autograd.grad(loss, every, allow_unused=True))
    sites = [_squares(next(found)) / outputs[0].numel() for _ in outputs]
    return Signal(
        layers=layers,
        forward=[_finite(state.var().item()) for state in trace.depth_states],
        backward=[_finite((a + b) / 2) for a, b in zip(sites[::2], sites[1::2], strict=True)],
        gradient=[_finite(sum(_squares(next(found)) for _ in own) ** 0.5) for own in parameters],
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _over(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def _squares(tensor: Tensor | None) -> float:
    return 0.0 if tensor is None else tensor.square().sum().item()


def propagation(subject: Subject) -> Outcome:
    """States and gradients of 256 blocks are finite at every depth."""
    signal = signal_at(subject, DEPTHS[-1])
    signals = {"the state": signal.forward, "the gradient": signal.gradient}
    for name, values in signals.items():
        for depth, value in enumerate(values):
            if value is None:
                return broken(f"{name} at depth {depth} of {DEPTHS[-1]} is not finite")
    ratio = signal.gradient_ratio
    said = "the top block gets no gradient" if ratio is None else f"{ratio:.3g}"
    return held(f"gradient of the bottom block over the top one's: {said}")
