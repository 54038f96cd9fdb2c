"""What is checked: one design on one backbone, at sizes where every law shows in moments."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from depthbench.designs import label_of, parse_design
from depthbench.designs.base import DesignConfig
from depthbench.nn.branch import Backbone
from depthbench.nn.model import Model, ModelConfig
from depthbench.shapes import Shape

SMALL = Shape(layers=3, width=32, heads=4, kv_heads=2, ffn=24, vocab=99)
"""Grouped-query attention, with a vocabulary and a feed-forward of no round size."""


@dataclass(frozen=True)
class Subject:
    """A design on a backbone."""

    design: DesignConfig
    backbone: Backbone = field(default_factory=Backbone)

    @property
    def label(self) -> str:
        """Of the design, and of the backbone where it is another than the dense one."""
        name = self.backbone.name
        return label_of(self.design) + ("" if name == "dense" else f" on {name}")

    def config(self, shape: Shape = SMALL, **constants: Any) -> ModelConfig:
        """The model at ``shape``; ``constants`` replace the backbone's."""
        backbone = type(self.backbone).parse(self.backbone.resolved() | constants)
        return ModelConfig(shape=shape, design=self.design, backbone=backbone)

    def on_meta(self) -> Model:
        """A small model without memory; raises `DepthbenchError` for what is refused."""
        return Model.on_meta(self.config())

    def plain(self) -> "Subject":
        """`prenorm` on the same backbone."""
        return Subject(parse_design("prenorm"), self.backbone)

    @cached_property
    def random(self) -> Model:
        """A float64 model all of whose parameters are random, those that start at 0 included."""
        return random_model(self.config())


def random_model(config: ModelConfig, seed: int = 0) -> Model:
    """A float64 model all of whose parameters are random, those that start at 0 or 1 included.

    Matrices keep the scale of what they multiply; gains take both signs, so a gain that is left
    out or applied twice shows.
    """
    model = Model.on_meta(config).double().to_empty(device="cpu")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(noise * (0.5 if parameter.numel() < 512 else 0.25))
    return model


def tokens_of(batch: int = 2, length: int = 10, seed: int = 1, vocab: int = SMALL.vocab) -> Tensor:
    """Random tokens."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocab, (batch, length), generator=generator)


def loss_of(model: Model, tokens: Tensor) -> Tensor:
    """Mean next-token cross entropy."""
    logits = model(tokens[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def distance(one: Tensor, other: Tensor) -> float:
    """Largest difference over the largest entry of ``other``; infinite where one is not finite."""
    if not (one.isfinite().all() and other.isfinite().all()):
        return float("inf")
    largest = other.abs().max().item()
    difference = (one - other).abs().max().item()
    return difference / largest if largest > 0 else difference


def gradients_of(model: Model, logits: Tensor) -> dict[str, Tensor]:
    """Of a loss that weighs all logits differently; zeros where a parameter has no influence."""
    model.zero_grad()
    weights = torch.linspace(-1, 1, logits.numel(), dtype=logits.dtype).view_as(logits)
    (logits * weights).sum().backward()
    found = {
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for name, p in model.named_parameters()
    }
    model.zero_grad()
    return found


@contextmanager
def one_thread() -> Iterator[None]:
    """Small models are slower on many."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
