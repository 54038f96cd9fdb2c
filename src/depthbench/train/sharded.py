"""A model whose parameters are spread over processes, block by block (FSDP2)."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, final

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from depthbench.nn.model import Model, ModelConfig
from depthbench.nn.parameters import initialise
from depthbench.train.checkpoint import Checkpoint
from depthbench.train.group import Group
from depthbench.train.parts import kinds_of, read_parts, write_parts


@final
class Sharded(Group):
    """Every process holds a part of each parameter, its gradient and its optimizer state.

    A block with its connections is gathered before it runs and let go after it; what stands
    outside the blocks stays gathered for a forward. Single numbers cannot be split: every process
    holds them, and their gradients are averaged.
    """

    what: ClassVar[str] = "the model in parts"

    def build(self, config: ModelConfig, seed: int, device: torch.device) -> Model:
        # blocks hand on views of what others gave them, and nothing in the model writes into one
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
        model = Model.on_meta(config)
        model.packs_states = True
        mesh = init_device_mesh(device.type, (self.size,))
        numbers = set(_numbers(model))
        for module in (*model.blocks, model):
            fully_shard(module, mesh=mesh, ignored_params=numbers)
        model.to_empty(device=device)
        initialise(model, seed, self.place)
        return model

    def forward_of(self, model: Model) -> Callable[..., Any]:
        return model

    @contextmanager
    def adding_up(self, model: Model, last: bool) -> Iterator[None]:
        assert isinstance(model, FSDPModule)
        model.set_requires_gradient_sync(last)
        yield

    def exchange_rest(self, model: Model) -> None:
        gradients = [p.grad for p in _numbers(model) if p.grad is not None]
        if not gradients:
            return
        together = torch.stack([one.flatten()[0] for one in gradients])
        distributed.all_reduce(together)
        for gradient, mean in zip(gradients, together / self.size, strict=True):
            gradient.fill_(mean)

    def place(self, like: Tensor, whole: Tensor) -> Tensor:
        if not isinstance(like, DTensor):
            return super().place(like, whole)
        own = whole.to(like.device)
        return distribute_tensor(own, like.device_mesh, like.placements, src_data_rank=None)

    def write(self, folder: Path, tensors: dict[str, dict[str, Tensor]]) -> None:
        shared = {n: own for n, own in tensors.items() if any(map(_is_part, own.values()))}
        for name, own in shared.items():
            write_parts(folder / name, own)
        super().write(folder, {n: own for n, own in tensors.items() if n not in shared})

    def read(
        self, found: Checkpoint, name: str, like: Callable[[str], Tensor | None]
    ) -> dict[str, Tensor]:
        parts = found.parts(name)
        if parts is None:
            return {key: self._placed(like(key), tensor) for key, tensor in found.each(name)}
        own = {}
        for key, kind in kinds_of(parts).items():
            model = like(key)
            if model is None:
                own[key] = torch.empty_like(kind, device="cpu")
            else:
                own[key] = torch.empty_like(model)
        read_parts(parts, own, alone=False)
        return own

    def _placed(self, like: Tensor | None, whole: Tensor) -> Tensor:
        return whole if like is None else self.place(like, whole)


def _numbers(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.ndim == 0]


def _is_part(tensor: Tensor) -> bool:
    return isinstance(tensor, DTensor)
