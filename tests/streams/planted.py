"""Models with streams whose truth is known."""

from collections.abc import Sequence

import torch
from torch import nn

from depthbench.designs import parse_design
from depthbench.nn.block import Block
from depthbench.nn.model import Model, ModelConfig
from depthbench.probes.batch import Batch
from depthbench.probes.lab import Alone, Lab
from depthbench.probes.own import OwnSubject
from depthbench.probes.text import Text, TextFacts
from depthbench.probes.walk import Limits
from depthbench.shapes import Shape

SHAPE = Shape(layers=3, width=16, heads=2, kv_heads=2, ffn=24, vocab=23)


@torch.no_grad()
def noisy(design: object, shape: Shape = SHAPE, seed: int = 0) -> Model:
    """A model none of whose parameters is as it starts, in float64."""
    config = ModelConfig(shape=shape, design=parse_design(design))
    model = Model.build(config, seed=seed, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.add_(0.3 * noise * (parameter.abs().mean() + 0.3))
    return model


@torch.no_grad()
def tied(model: Model, one: int, other: int, factor: float = 1.0) -> Model:
    """Make stream ``other`` of an `hc` model ``factor`` times stream ``one``, behind site 0.

    A factor other than 1 and -1 suits static coefficients alone: a tanh is not to be scaled.
    """
    for site, _, connection in model.sites():
        tie(connection, one, other, factor)
        if site == 0 and factor != 1 and "dynamic" in dict(connection.named_parameters()):
            # both still are the embedding here, and a dynamic β would be the same for both
            connection.get_parameter("dynamic")[-1] = 0
    return model


@torch.no_grad()
def tie(connection: nn.Module, one: int, other: int, factor: float = 1.0) -> None:
    """What this site writes into ``other`` is ``factor`` times what it writes into ``one``."""
    parameters = dict(connection.named_parameters())
    write, mix = parameters["static_write"], parameters["static_mix"]
    write[other] = factor * write[one]
    mix[:, other] = factor * mix[:, one]
    if "dynamic" in parameters:
        streams = len(write)
        rows = parameters["dynamic"]
        # columns of A, one row of W each; the last row is β's, the same for all streams
        rows[1 + other] = factor * rows[1 + one]
        assert len(rows) == streams + 2


def lab_of(model: Model, rows: Sequence[Sequence[int]], domains: Sequence[str] = ()) -> Lab:
    """A lab on these rows, two a batch."""
    batches = tuple(
        Batch.of_rows(rows[n : n + 2], documents=range(n, min(n + 2, len(rows))))
        for n in range(0, len(rows), 2)
    )
    names = tuple(domains) or tuple(f"domain {n % 2}" for n in range(len(rows)))
    facts = TextFacts(
        hash="planted",
        origin="planted",
        domains=tuple(dict.fromkeys(names)),
        documents=len(rows),
        tokens=sum(map(len, rows)),
        predicted=sum(len(row) - 1 for row in rows),
        bytes=None,
        length=max(map(len, rows)),
        start_token=None,
    )
    text = Text(batches, facts, names)
    subject = OwnSubject(model, "planted")
    return Lab(subject, text, Alone(subject, text, Limits()))


def random_rows(
    count: int, length: int, vocab: int = SHAPE.vocab, seed: int = 0
) -> list[list[int]]:
    """Rows of tokens drawn evenly."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocab, (count, length), generator=generator).tolist()


def blocks_of(model: Model) -> list[Block]:
    """All blocks, as such."""
    return [block for block in model.blocks if isinstance(block, Block)]
