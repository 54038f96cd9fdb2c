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
OTHER_TOKENS = ((3, 9), (5, 16), (4, 7))
"""Batch and time of what the first model meets after its own `BATCHES`."""
ROUNDING = 1e-10
"""Of float64 in another order, relative to the largest entry."""
READS = ("item", "tolist")
"""Calls that read numbers out of a tensor."""


class CountingBackend:
    """Runs the captured graph as it is, and counts how often it is asked to compile."""

    def __init__(self) -> None:
        self.compilations = 0
        self.reads = 0
        """Numbers that are read out of tensors: one graph here, a break or a wait elsewhere."""

    def __call__(self, graph: GraphModule, _: list[Tensor]) -> object:
        self.compilations += 1
        self.reads += sum(node.target in READS for node in graph.graph.nodes)
        return graph.forward


def compiling(subject: Subject) -> Outcome:
    """One graph for each of several shapes, with plain running's logits and gradients.

    A second one serves all other batches and lengths of a model.
    """
    worst = 0.0
    for number, (layers, width) in enumerate(SIZES):
        shape = SMALL.model_copy(update={"layers": layers, "width": width})
        compiled = Compiled(random_model(subject.config(shape)))
        for seed in range(BATCHES):
            worst = max(worst, compiled.compared(tokens_of(length=6, seed=seed)))
            compiled.refill(seed)
        count = compiled.backend.compilations
        if compiled.backend.reads:
            return broken(
                f"{compiled.backend.reads} numbers are read out of tensors, as by .item(): that "
                "breaks the graph, or waits for the device"
            )
        if count != 1:
            return broken(f"{count} compilations of {layers} layers of width {width}, not one")
        if number == 0:
            for batch, length in OTHER_TOKENS:
                worst = max(worst, compiled.compared(tokens_of(batch, length)))
            count = compiled.backend.compilations
            if count > 2:
                return broken(f"{count} compilations over {1 + len(OTHER_TOKENS)} shapes of tokens")
        if worst > ROUNDING:
            break
    return within(worst, ROUNDING, "logits and gradients, compiled and plain")


class Compiled:
    """A model beside its compiled version; a graph break raises the compiler's error.

    The compiler counts all models of a process together and gives up at eight, so it is reset.
    """

    def __init__(self, model: Model) -> None:
        torch.compiler.reset()
        self.model, self.backend = model, CountingBackend()
        self.run = torch.compile(model, backend=self.backend, fullgraph=True)

    def compared(self, tokens: Tensor) -> float:
        """Largest distance of logits and gradients to plain running."""
        with plain_kernels():
            expected = self.model(tokens)
            gradients = gradients_of(self.model, expected)
        logits = self.run(tokens)
        worst = distance(logits, expected)
        for name, gradient in gradients_of(self.model, logits).items():
            if gradients[name].abs().max() > ROUNDING:
                worst = max(worst, distance(gradient, gradients[name]))
        return worst

    @torch.no_grad()
    def refill(self, seed: int) -> None:
        """Other parameters: they are no constants of the graph."""
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.model.parameters():
            parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
