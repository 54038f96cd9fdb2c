"""Teams of several processes, by torch.distributed."""

import os
import pickle
from abc import ABC
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ClassVar, TypeVar, final

import torch
from torch import Tensor, distributed
from torch.nn.parallel import DistributedDataParallel

from depthbench.errors import DepthbenchError, unknown
from depthbench.nn.model import Model, ModelConfig
from depthbench.train.team import Solo, Team

T = TypeVar("T")
_MET: list[Any] = []
"""Groups that this process has met. They are kept to its end: gloo's threads take Python's lock to
let go of a tensor, and DistributedDataParallel, if it is the last to hold a group, ends those
threads with the lock in hand and waits for ever."""


class Group(Team, ABC):
    """All processes of the present torch.distributed group."""

    what: ClassVar[str]
    """What each process holds, in words."""

    def __init__(self, device: torch.device) -> None:
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()
        self.device = device

    def notes(self) -> list[str]:
        return [f"trained by {self.size} processes ({self.what})"]

    def totals(self, numbers: Sequence[float]) -> list[float]:
        return self._sum(torch.tensor(list(numbers), dtype=torch.float64)).tolist()

    def told(self, value: T) -> T:
        return self.gathered(value if self.main else None)[0]  # pyright: ignore[reportReturnType]

    def gathered(self, value: T) -> list[T]:
        data = pickle.dumps(value)
        sizes = self._sum(self._row(torch.tensor([len(data)])))[:, 0].tolist()
        padded = torch.zeros(max(sizes), dtype=torch.uint8)
        padded[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        rows = self._sum(self._row(padded)).numpy()
        return [pickle.loads(row[:size]) for row, size in zip(rows, sizes, strict=True)]  # noqa: S301

    def _row(self, values: Tensor) -> Tensor:
        """A row for each process, all 0 but this one's."""
        rows = values.new_zeros(self.size, len(values))
        rows[self.rank] = values
        return rows

    def _sum(self, values: Tensor) -> Tensor:
        sums = values.to(self.device)
        distributed.all_reduce(sums)
        return sums.cpu()


@final
class Replicated(Group):
    """Every process holds the whole model; gradients are averaged (DistributedDataParallel)."""

    what: ClassVar[str] = "the model whole in each"

    def build(self, config: ModelConfig, seed: int, device: torch.device) -> Model:
        model = Model.build(config, seed, device)
        self.wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
        return model

    def forward_of(self, model: Model) -> Callable[..., Any]:
        return self.wrapped

    def adding_up(self, model: Model, last: bool) -> AbstractContextManager[object]:
        return nullcontext() if last else self.wrapped.no_sync()


def strategies() -> dict[str, type[Group]]:
    """How a model may lie on several processes, by name."""
    from depthbench.train.sharded import Sharded

    return {"ddp": Replicated, "fsdp": Sharded}


@contextmanager
def joined(strategy: str, device: str) -> Iterator[Team]:
    """The team that this process belongs to: what ``torchrun`` started, or itself alone.

    Raises `DepthbenchError` for an unknown strategy, and where the processes do not meet.
    """
    kinds = strategies()
    if strategy not in kinds:
        raise unknown("parallel", strategy, kinds)
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Solo()
        return
    here = torch.device(device)
    if here.type == "cuda":
        here = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(here)
    try:
        distributed.init_process_group("nccl" if here.type == "cuda" else "gloo")
    except (ValueError, RuntimeError, distributed.DistError) as error:
        reason = str(error).strip().splitlines()[0]
        raise DepthbenchError(
            f"the processes of this run do not find each other ({reason}). Start them with "
            "torchrun --nproc_per_node N -m depthbench train ..."
        ) from None
    _MET.append(distributed.group.WORLD)
    try:
        yield kinds[strategy](here)
    finally:
        distributed.destroy_process_group()
