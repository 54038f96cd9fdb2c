"""Which experts the routers of a Hugging Face model choose, seen in its own forward."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from depthbench.errors import DepthbenchError
from depthbench.probes.batch import Batch
from depthbench.probes.hf_record import own_forward, tensors_in

ROUTER = re.compile(r"Router$|Gate$|Gating$")
"""Classes of what chooses experts."""


def _routers(blocks: Sequence[nn.Module]) -> Iterator[tuple[int, nn.Module]]:
    for number, block in enumerate(blocks):
        for module in block.modules():
            if ROUTER.search(type(module).__name__):
                yield number, module


def no_routers(blocks: Sequence[nn.Module]) -> str | None:
    """Why ``blocks`` hold no router; None where they do."""
    if any(_routers(blocks)):
        return None
    return "its blocks hold no module that is called a router (…Router, …Gate or …Gating)"


@torch.no_grad()
def router_shares(
    model: nn.Module, blocks: Sequence[nn.Module], batch: Batch
) -> dict[int, Float[Tensor, "b experts"]]:
    """By block: the share of each row's choices that went to each expert, of its text alone.

    Raises `DepthbenchError` where a router does not give logits and choices, or a block has two.
    """
    found: dict[int, Tensor] = {}

    def watch(number: int) -> Callable[..., None]:
        def keep(router: nn.Module, _: Any, output: Any) -> None:
            if number in found:
                raise DepthbenchError(
                    f"block {number} of {type(model).__name__} has more than one router, and their "
                    "choices cannot be told apart"
                )
            chosen, experts = _choices(router, output, batch)
            counts = functional.one_hot(chosen, experts).double().sum(-2) / chosen.shape[-1]
            counts = counts * batch.valid.unsqueeze(-1)
            found[number] = counts.sum(1) / batch.valid.sum(1, keepdim=True)

        return keep

    with ExitStack() as hooks:
        for number, router in _routers(blocks):
            hooks.enter_context(router.register_forward_hook(watch(number)))
        own_forward(model, batch)
    return found


def _choices(router: nn.Module, output: Any, batch: Batch) -> tuple[Int[Tensor, "b t k"], int]:
    """Experts of each token, and how many there are: a column of the logits each."""
    rows = batch.tokens.shape
    tensors = [
        one.reshape(*rows, -1)
        for one in tensors_in(output)
        if one.ndim > 1 and one.shape[:-1].numel() == rows.numel()
    ]
    chosen = [one for one in tensors if not one.is_floating_point()]
    scores = [one for one in tensors if one.is_floating_point()]
    if len(chosen) != 1 or not scores:
        raise DepthbenchError(
            f"{type(router).__name__} gives no choices that can be read: one tensor of whole "
            "numbers and one of logits, with a row for each token, are needed"
        )
    return chosen[0], max(one.shape[-1] for one in scores)
