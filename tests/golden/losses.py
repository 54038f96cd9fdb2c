"""The first hundred losses of a tiny model of each design, as JSON.

``python -m tests.golden.losses > tests/golden/losses.json`` writes the file of the test anew. Do
so only after a change that is meant to alter a design's numbers, and say in the commit which and
why.
"""

import json

import torch
from torch import nn

from depthbench.designs import REGISTRY
from depthbench.nn.model import Model
from depthbench.shapes import Shape
from tests.oracles import config_of

SHAPE = Shape(layers=5, width=32, heads=4, kv_heads=2, ffn=24, vocab=99)
STEPS, BATCH, LENGTH = 100, 4, 16
OTHER_STARTS = {"mhc_lite": {"name": "mhc_lite", "start": "paper"}}
"""Of designs that stay too close to another in so few steps: `mhc_lite`, started as pre-norm, has
streams that are as good as equal, and mixing equal streams is the same by whatever matrix."""


def batch_of(step: int) -> torch.Tensor:
    """Sequences to learn: from a random start, each token is the last one times 3 plus 1 or 2."""
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(SHAPE.vocab, (BATCH, LENGTH + 1), generator=generator)
    noise = torch.randint(1, 3, tokens.shape, generator=generator)
    for t in range(LENGTH):
        tokens[:, t + 1] = (3 * tokens[:, t] + noise[:, t]) % SHAPE.vocab
    return tokens


def losses_of(name: str) -> list[float]:
    """AdamW at a constant rate in float32."""
    model = Model.build(config_of(OTHER_STARTS.get(name, name), SHAPE), seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False, fused=False)
    losses = []
    for step in range(STEPS):
        tokens = batch_of(step)
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    torch.set_num_threads(1)
    rows = [
        f"{json.dumps(name)}: {json.dumps([round(loss, 6) for loss in losses_of(name)])}"
        for name in REGISTRY
    ]
    print("{\n" + ",\n".join(rows) + "\n}")


if __name__ == "__main__":
    main()
