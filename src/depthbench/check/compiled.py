"""The law that a model compiles as one graph, once."""

import torch
from torch import Tensor
from torch.fx import GraphModule

from depthbench.check.law import Outcome, broken, within
from depthbench.check.subject import (
    SMALL,
    Subject,
    distance,
    gradients_of,
    random_model,
    tokens_of,
)
from depthbench.nn.kernels import plain_kernels
from depthbench.nn.model import Model

SIZES = ((2, 16), (3, 32), (6, 32))
"""Layers and width of the models."""
BATCHES = 3
"""Of other tokens, and other parameters, for each model."""


class CountingBackend:
    """Runs the captured graph as it is, and counts how often it is asked to compile."""

    def __init__(self) -> None:
        self.compilations = 0

    def __call__(self, graph: GraphModule, _: list[Tensor]) -> object:
        self.compilations += 1
        return graph.forward


def compiling(subject: Subject) -> Outcome:
    """One graph for each of several shapes, with plain running's logits and gradients."""
    worst = 0.0
    for layers, width in SIZES:
        shape = SMALL.model_copy(update={"layers": layers, "width": width})
        model = random_model(subject.config(shape))
        count, off = compile_and_compare(model)
        if count != 1:
            return broken(f"{count} compilations of {layers} layers of width {width}, not one")
        worst = max(worst, off)
    return within(worst, 1e-10, f"logits and gradients at {len(SIZES)} shapes")


def compile_and_compare(model: Model) -> tuple[int, float]:
    """Number of compilations over `BATCHES`, and the largest distance to plain running.

    A graph break raises the compiler's error. The compiler counts all models of a process
    together and gives up at eight, so it is reset.
    """
    backend, worst = CountingBackend(), 0.0
    torch.compiler.reset()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    generator = torch.Generator().manual_seed(0)
    for seed in range(BATCHES):
        tokens = tokens_of(length=6, seed=seed)
        with plain_kernels():
            expected = model(tokens)
            gradients = gradients_of(model, expected)
        logits = compiled(tokens)
        worst = max(worst, distance(logits, expected))
        for name, gradient in gradients_of(model, logits).items():
            if gradients[name].abs().max() > 1e-10:
                worst = max(worst, distance(gradient, gradients[name]))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
    return backend.compilations, worst
