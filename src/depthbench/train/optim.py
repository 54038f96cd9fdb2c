"""AdamW with a group of parameters for each rule of the model's parametrization."""

from typing import Any

import torch
from torch import nn

from depthbench.nn.model import Model
from depthbench.nn.parameters import declared
from depthbench.train.config import TrialConfig


def make_optimizer(model: Model, config: TrialConfig) -> torch.optim.AdamW:
    """AdamW over `parameter_groups`, each at its share of the peak learning rate."""
    train = config.train
    return torch.optim.AdamW(
        parameter_groups(model, config),
        lr=config.learning_rate,
        betas=(train.beta1, train.beta2),
        fused=True,
    )


def parameter_groups(model: Model, config: TrialConfig) -> list[dict[str, Any]]:
    """Parameters by learning rate, weight decay and eps; with decay first.

    ``rate_factor`` is the group's learning rate over that of the schedule. `standard` has two
    groups: with and without weight decay.
    """
    train, scaling = config.train, model.scaling
    inside = {id(parameter) for parameter in model.blocks.parameters()}
    groups: dict[tuple[bool, float, float, float, str], list[nn.Parameter]] = {}
    for parameter, start in declared(model):
        in_block = id(parameter) in inside
        rate, eps = (factor(start, in_block=in_block) for factor in (scaling.rate, scaling.eps))
        decay = scaling.decay(start)
        # torch's optimizers take no list that mixes whole tensors and parts
        kind = type(parameter).__name__
        groups.setdefault((not start.decay, rate, decay, eps, kind), []).append(parameter)
    return [
        {
            "params": parameters,
            "lr": config.learning_rate * rate,
            "rate_factor": rate,
            "weight_decay": 0.0 if spared else train.weight_decay * decay,
            "eps": train.eps * eps,
        }
        for (spared, rate, decay, eps, _), parameters in groups.items()
    ]
