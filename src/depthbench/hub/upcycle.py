"""A model of another design that begins as a trained one: upcycling."""

import torch
from torch import Tensor

from depthbench.config import Frozen
from depthbench.designs import REGISTRY
from depthbench.designs.base import DesignConfig
from depthbench.errors import DepthbenchError
from depthbench.nn.model import Model, ModelConfig

SEQUENCES, LENGTH = 2, 64


class Distance(Frozen):
    """Between the logits of two models on the same tokens."""

    largest: float
    """Largest difference of one logit."""
    relative: float
    """Norm of the difference over the norm of the source's logits."""
    promised: float | None
    """The design's own bound on the relative one, in float64 at ``norm_eps = 1e-12``; None where
    it does not begin as a pre-norm model."""


@torch.no_grad()
def upcycled(source: Model, design: DesignConfig, seed: int = 0) -> Model:
    """A model of ``design`` with the weights of ``source``; what is its own starts as it does.

    Exact where the design starts as `prenorm` (`Design.distance_at_start`): its streams are copies
    of the embedding, its reads and writes those of one residual stream, or the branches' norms are
    blind to the mean that it reads instead of a sum. Raises `DepthbenchError` where ``source`` is
    no `prenorm` model, or its weights have no place.
    """
    config = source.config
    if config.design.name != "prenorm":
        raise DepthbenchError(
            f"design '{config.design.name}': only a model of 'prenorm' can begin another design. "
            "Name a pre-norm model, such as an imported LLaMA"
        )
    weight = source.embed.weight
    changed = ModelConfig.model_validate(config.model_copy(update={"design": design}))
    made = Model.build(changed, seed, weight.device, weight.dtype)
    places = dict(made.named_parameters())
    for name, given in source.named_parameters():
        if name not in places or places[name].shape != given.shape:
            raise DepthbenchError(
                f"design '{design.name}' has no place for {name}, so it cannot begin as this "
                f"model. Designs that begin as pre-norm: {', '.join(_exact())}"
            )
        places[name].copy_(given)
    return made.eval()


def _exact() -> list[str]:
    return [name for name, one in REGISTRY.items() if one.start_distance is not None]


@torch.no_grad()
def distance(source: Model, made: Model, seed: int = 0) -> Distance:
    """On random tokens."""
    generator = torch.Generator().manual_seed(seed)
    vocab = source.config.shape.vocab
    tokens = torch.randint(vocab, (SEQUENCES, LENGTH), generator=generator)
    tokens = tokens.to(source.embed.weight.device)
    logits, others = (_logits(one, tokens) for one in (source, made))
    difference = others - logits
    return Distance(
        largest=difference.abs().max().item(),
        relative=(difference.norm() / logits.norm()).item(),
        promised=made.design.distance_at_start(),
    )


def _logits(model: Model, tokens: Tensor) -> Tensor:
    return model(tokens).double()
