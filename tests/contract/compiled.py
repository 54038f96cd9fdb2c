"""Compiles models and reports what happened, in a process without run-time shape checks.

Between models the compiler is reset, as whoever compiles many in one process must: it counts the
compilations of all models together and gives up at eight.

Usage: ``python -m tests.contract.compiled model|blocks LAYERSxWIDTH,… LABEL …``, where a label such
as ``hc on moe`` names another backbone than the dense one; prints one JSON object a model:
compilations over its batches, and the largest distance of logits and gradients to plain running,
each over the largest value. A graph break is an error. ``blocks`` compiles each block, or branches,
instead of the whole model, and then shows it longer sequences: ``longer`` are all compilations.
"""

import json
import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn

from depthbench.check.compiled import CountingBackend
from depthbench.nn.compiled import Compiler
from depthbench.nn.model import Model
from depthbench.shapes import Shape
from tests.contract.variants import VARIANTS
from tests.oracles import config_of, random_model, tokens_of


def gradients_of(model: Model, logits: Tensor) -> Tensor:
    """All gradients of a fixed weighing of the logits, in one vector."""
    weights = torch.linspace(-1, 1, logits.numel(), dtype=logits.dtype).view_as(logits)
    model.zero_grad()
    (logits * weights).sum().backward()
    gradients = [
        torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters()
    ]
    return torch.cat([g.flatten() for g in gradients])


def farthest(model: Model, run: Callable[[Tensor], Tensor], tokens: Tensor) -> float:
    """Distance of compiled logits and gradients to the model's own."""
    logits = run(tokens)
    gradients = gradients_of(model, logits)
    compiler, model.compiler = model.compiler, None
    expected = model(tokens)
    pairs = [(logits, expected), (gradients, gradients_of(model, expected))]
    model.compiler = compiler
    return max(((one - other).abs().max() / other.abs().max()).item() for one, other in pairs)


def report(what: str, label: str, layers: int, width: int) -> dict[str, float]:
    """Three batches with other tokens and other parameters, compiled and not."""
    shape = Shape(layers=layers, width=width, heads=4, kv_heads=2, ffn=24, vocab=99)
    design, _, backbone = label.partition(" on ")
    model = random_model(config_of(VARIANTS[design], shape, name=backbone or "dense"))
    backend = CountingBackend()
    run: Callable[[Tensor], Tensor] = model
    if what == "blocks":
        model.compiler = Compiler(backend)
    else:
        torch.compiler.reset()
        run = torch.compile(model, backend=backend, fullgraph=True)
    distance = 0.0
    for seed in range(3):
        distance = max(distance, farthest(model, run, tokens_of(shape, seed=seed)))
        with torch.no_grad():
            for parameter in model.parameters():
                nn.init.normal_(parameter, std=0.1)
    found: dict[str, float] = {"compilations": backend.compilations, "distance": distance}
    if what == "blocks":
        for length in (9, 12, 7):
            found["distance"] = max(distance, farthest(model, run, tokens_of(shape, 2, length)))
        found["longer"] = backend.compilations
    return found


def main(what: str, sizes: str, *labels: str) -> None:
    torch.set_num_threads(1)
    for label in labels:
        for size in sizes.split(","):
            layers, width = size.split("x")
            found = report(what, label, int(layers), int(width))
            print(json.dumps({"label": label, "size": size, **found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
