"""Which earlier outputs reach which site, and how strongly: measured, not drawn by hand.

Every branch is cut off: a fixed random tensor of size 1 stands for its output, and the embedding
has size 1 too. What then changes in a site's input when one of these tensors changes a little has
come through the design alone.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from depthbench.designs import parse_design
from depthbench.designs.base import DesignConfig
from depthbench.nn.ends import OwnHead
from depthbench.nn.kernels import plain_kernels
from depthbench.nn.model import Model, ModelConfig
from depthbench.shapes import Shape

SHAPE = Shape(layers=4, width=32, heads=4, kv_heads=2, ffn=32, vocab=32)
"""The vocabulary is as wide as the model, so that the head can be the identity."""
DRAWS = 4
"""Outputs, directions and, where they are random, parameters: the root mean square over these."""
STEP = 1e-5
LAST = "out"


@dataclass(frozen=True)
class Wiring:
    """Strengths of a design's wires; sources are the embedding (0) and the outputs of all sites."""

    targets: tuple[str, ...]
    """Sites in order, then the readout."""
    forward: tuple[tuple[float, ...], ...]
    """By target and source: size of the change of the target's input, for a change of size 1."""
    backward: tuple[tuple[bool, ...], ...]
    """By target and source: whether the target's gradient returns to the source."""
    stored: tuple[tuple[float, ...], ...]
    """By target and earlier site: gradient of the target's branch by that site's input, through
    what the site stored for attention; all 0 where nothing is stored."""
    sums: tuple[tuple[str, ...], ...]
    """Sources that the readout sees only as their sum: its gradients by them are the same. With
    the first draw's parameters; sources without a gradient are left out."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The embedding, then the sites."""
        return ("emb", *self.targets[:-1])

    def relative(self, target: int) -> list[float]:
        """Strengths of the wires into one target, over the strongest of them."""
        return over_largest(self.forward[target])


def over_largest(strengths: tuple[float, ...]) -> list[float]:
    """All over the largest; zeros stay."""
    largest = max(strengths, default=0.0)
    return [strength / largest if largest else 0.0 for strength in strengths]


def drawn_config(name: str) -> DesignConfig:
    """The design with the options at which a figure of few blocks shows it."""
    default = parse_design(name)
    return parse_design({"name": name, **default.drawn()})


def wiring(design: DesignConfig, *, learned: bool) -> Wiring:
    """Wires of a model at the design's start, or with random numbers added where it can learn."""
    config = ModelConfig(shape=SHAPE, design=design)
    found = [_Draw(config, seed, learned) for seed in range(DRAWS)]
    sites = range(2 * SHAPE.layers)
    names = tuple(f"{'AF'[site % 2]}{site // 2}" for site in sites)
    return Wiring(
        targets=(*names, LAST),
        forward=_mean([draw.forward() for draw in found]),
        backward=_any([draw.backward() for draw in found]),
        stored=_mean([draw.stored() for draw in found]),
        sums=found[0].sums(("emb", *names)),
    )


def _mean(draws: list[Tensor]) -> tuple[tuple[float, ...], ...]:
    mean = torch.stack(draws).square().mean(0).sqrt()
    return tuple(map(tuple, mean.tolist()))


def _any(draws: list[Tensor]) -> tuple[tuple[bool, ...], ...]:
    return tuple(map(tuple, (torch.stack(draws) > 0).any(0).tolist()))


class _Draw:
    """One model with its branches cut off."""

    def __init__(self, config: ModelConfig, seed: int, learned: bool) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.model = Model.build(config, seed, dtype=torch.float64)
        self.design = self.model.design
        width, vocab = config.shape.width, config.shape.vocab
        self.tokens = torch.randperm(vocab, generator=self.generator)[None]
        with torch.no_grad():
            if learned:
                self._learn()
            assert isinstance(self.model.head, OwnHead)
            self.model.head.weight.copy_(torch.eye(width))
            self.model.embed.weight.copy_(self._noise(vocab, width))
        shape = (1, self.tokens.shape[1], width)
        self.outputs = [self._noise(*shape) for _ in self.model.sites()]

    def _noise(self, *shape: int) -> Tensor:
        """Random, of root mean square 1."""
        noise = torch.randn(shape, generator=self.generator, dtype=torch.float64)
        return noise / noise.square().mean().sqrt()

    def _learn(self) -> None:
        """Random numbers on all parameters of the design, 1 in what they multiply."""
        connections = [connection for _, _, connection in self.model.sites()]
        for module in (self.design, *connections):
            for parameter in module.parameters():
                wide = parameter.ndim > 0 and parameter.shape[-1] >= SHAPE.width
                noise = torch.randn(parameter.shape, generator=self.generator, dtype=torch.float64)
                parameter += noise * (parameter.shape[-1] ** -0.5 if wide else 0.5)

    def _run(self, outputs: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Inputs of all targets, and what the branches would have returned."""
        inputs: list[Tensor] = []
        branches: list[Tensor] = []

        def cut(site: int, x: Tensor, y: Tensor) -> Tensor:
            inputs.append(x)
            branches.append(y)
            return outputs[site]

        with plain_kernels():
            logits = self.model(self.tokens, tap=cut)
        return [*inputs, logits], branches

    @torch.no_grad()
    def forward(self) -> Tensor:
        """Change of every target's input for each source, by central differences."""
        sources = [self.model.embed.weight.data, *self.outputs]
        columns = []
        for source in sources:
            before, direction = source.clone(), self._noise(*source.shape)
            source += STEP * direction
            above = self._run(self.outputs)[0]
            source.copy_(before - STEP * direction)
            below = self._run(self.outputs)[0]
            source.copy_(before)
            changes = [a - b for a, b in zip(above, below, strict=True)]
            columns.append(torch.stack([c.square().mean().sqrt() for c in changes]) / (2 * STEP))
        return torch.stack(columns, dim=1)

    def backward(self) -> Tensor:
        """Norm of the gradient that comes back to each source from every target's input."""
        outputs = [output.clone().requires_grad_() for output in self.outputs]
        sources = [self.model.embed.weight, *outputs]
        inputs = self._run(outputs)[0]
        gradients = [self._gradients(x, sources) for x in inputs]
        return torch.stack([_norms(by_source) for by_source in gradients])

    def sums(self, names: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        """Names of sources with one gradient, in order of the first of each sum."""
        outputs = [output.clone().requires_grad_() for output in self.outputs]
        readout = self._run(outputs)[0][-1]
        embedding, *others = self._gradients(readout, [self.model.embed.weight, *outputs])
        found: list[tuple[Tensor, list[str]]] = []
        by_source = [embedding[self.tokens], *others]
        for name, gradient in zip(names, by_source, strict=True):
            if not gradient.any():
                continue
            for other, together in found:
                if torch.allclose(gradient, other, rtol=1e-9, atol=1e-12):
                    together.append(name)
                    break
            else:
                found.append((gradient, [name]))
        return tuple(tuple(together) for _, together in found)

    def stored(self) -> Tensor:
        """Gradient of every branch by the inputs of earlier sites that reach it unseen.

        A branch's own input must not depend on the earlier one, else it would be a wire of the
        design; and the outputs between are cut off, so what is left went through stored entries.
        """
        sites = len(self.outputs)
        found = torch.zeros(sites, sites, dtype=torch.float64)
        if not self.design.in_attention:
            return found
        inputs, branches = self._run(self.outputs)
        for site in range(sites):
            earlier = inputs[:site]
            through = _norms(self._gradients(branches[site], earlier))
            direct = _norms(self._gradients(inputs[site], earlier))
            found[site, :site] = torch.where(direct == 0, through, 0.0)
        return found

    def _gradients(self, target: Tensor, sources: list[Any]) -> list[Tensor]:
        """By each source, of a random sum of the target; zeros where it has no influence."""
        if not (sources and target.requires_grad):
            return [torch.zeros_like(source) for source in sources]
        total = (target * self._noise(*target.shape)).sum()
        gradients = torch.autograd.grad(total, sources, retain_graph=True, allow_unused=True)
        return [
            torch.zeros_like(source) if gradient is None else gradient
            for source, gradient in zip(sources, gradients, strict=True)
        ]


def _norms(gradients: list[Tensor]) -> Tensor:
    return torch.tensor([g.norm().item() for g in gradients], dtype=torch.float64)
