"""Trials side by side in processes of this machine."""

import os
import sys
from collections.abc import Sequence

import torch

from depthbench.cores import cores
from depthbench.errors import DepthbenchError
from depthbench.study.engine import POLL_SECONDS, Ended, Engine, Need, Place, Running, Setup, ended
from depthbench.study.plan import Planned
from depthbench.study.process import TrialProcess, places, wait_for_any


class Pool(Engine):
    """Up to ``workers`` trials at once; default: as many as this machine has room for."""

    here = True

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.processes: dict[int, TrialProcess] = {}
        """By place; those without a trial wait for the next."""
        self.slots: dict[str, int] = {}
        """Places of running trials, each with GPUs of its own."""
        self.check(setup.place, setup.need)
        self.workers = setup.place.workers or _room(setup.need)

    @classmethod
    def check(cls, place: Place, need: Need) -> None:
        if place.address is not None:
            raise DepthbenchError(
                f"--ray-address {place.address} is of a Ray cluster, but the engine is 'local'. "
                "Add --engine ray, or leave the address out"
            )
        if _room(need):
            return
        needs = f"{need.gpus:g} GPUs" if need.gpus else f"{need.cores} cores"
        has, name = (_gpus(), "gpus") if need.gpus else (cores(), "cpus")
        raise DepthbenchError(
            f"resources: a trial needs {needs}, but this machine has {has}. "
            f"Lower resources.{name}, or use a cluster (--engine ray)"
        )

    @property
    def free(self) -> int:
        return self.workers - len(self.running)

    def start(self, planned: Planned) -> None:
        slot = min(set(range(self.workers)) - set(self.slots.values()))
        share = self.setup.need.gpus
        job = self.setup.job(
            planned, gpus=visible(slot, share, _names_of_gpus()) if share else None
        )
        if slot in self.processes:
            self.processes[slot].begin(job)
        else:
            self.processes[slot] = TrialProcess(job)
        self.slots[planned.id] = slot
        self.running.append(Running(planned, pid=self.processes[slot].pid))

    def poll(self) -> list[Ended]:
        wait_for_any([self.processes[slot] for slot in self.slots.values()], POLL_SECONDS)
        over = []
        for one in list(self.running):
            slot = self.slots[one.planned.id]
            process = self.processes[slot]
            end = process.take()
            one.tokens = process.tokens
            if end is not None:
                self.running.remove(one)
                del self.slots[one.planned.id]
                if process.gone:
                    del self.processes[slot]
                over.append(ended(one, end))
        return over

    def stop(self) -> None:
        for slot in self.slots.values():
            self.processes[slot].terminate()
        for process in self.processes.values():
            process.join()
        self.running.clear()
        self.slots.clear()
        self.processes.clear()


def _room(need: Need) -> int:
    """Trials that this machine has cores for, or GPUs: those that have one wait for no core."""
    if need.gpus:
        return places(sys.maxsize, _gpus(), need.cores, need.gpus)
    return places(cores(), 0, need.cores, 0)


def _gpus() -> int:
    return torch.cuda.device_count()


def _names_of_gpus() -> list[str]:
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return given.split(",") if given else [str(gpu) for gpu in range(_gpus())]


def visible(slot: int, share: float, gpus: Sequence[str]) -> str:
    """The GPUs of a place where a trial needs ``share`` of them, by name."""
    first = slot * int(share) if share >= 1 else slot // int(1 / share)
    # more workers than there is room for take GPUs in turn
    return ",".join(gpus[(first + n) % len(gpus)] for n in range(max(1, int(share))))
