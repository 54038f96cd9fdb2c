"""What a merge changes: loss by domain, speed, memory."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from depthbench.config import Frozen
from depthbench.nn.model import Model
from depthbench.probes.batch import Batch
from depthbench.probes.lab import Alone, Lab
from depthbench.probes.loss import own_loss
from depthbench.probes.measures import Loss
from depthbench.probes.own import OwnSession, OwnSubject
from depthbench.probes.text import Text
from depthbench.probes.walk import Limits
from depthbench.streams.tune import Course

ROUNDS = 5


class Measured(Frozen):
    """Facts of one model, on one text and one machine."""

    streams: int
    parameters: int
    loss: float
    """Nats per token over all text."""
    loss_by_domain: dict[str, float]
    reads_per_second: float
    """Tokens of forward passes, median over rounds."""
    reads_ends: tuple[float, float]
    """Of the slowest and the fastest round."""
    trains_per_second: float
    """Tokens of forward and backward passes, median over rounds."""
    trains_ends: tuple[float, float]
    state_bytes: int
    """Of what travels between blocks, for one token."""
    kept_bytes: int
    """That a forward keeps for its backward pass, parameters left out, for one token."""


def measured(models: Sequence[Model], text: Text, course: Course) -> list[Measured]:
    """Facts of several models, timed in turn; medians over rounds."""
    batch = course.batch(0, 2**33)
    tokens = batch.tokens.numel()
    jobs = [(_reading(one, batch), _training(one, batch)) for one in models]
    for read, train in jobs:
        read()
        train()
    times: list[tuple[list[float], list[float]]] = [([], []) for _ in models]
    for _ in range(ROUNDS):
        for kept, job in zip(times, jobs, strict=True):
            for part in (0, 1):
                started = time.perf_counter()
                job[part]()
                kept[part].append(time.perf_counter() - started)
    return [
        _facts(one, text, batch, *(_rate(tokens, seconds) for seconds in kept))
        for one, kept in zip(models, times, strict=True)
    ]


def _rate(tokens: int, seconds: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """Median and ends over rounds, per second."""
    ends = tokens / max(seconds), tokens / min(seconds)
    return tokens / statistics.median(seconds), ends


def _facts(
    model: Model,
    text: Text,
    batch: Batch,
    reads: tuple[float, tuple[float, float]],
    trains: tuple[float, tuple[float, float]],
) -> Measured:
    subject = OwnSubject(model, "measured")
    lab = Lab(subject, text, Alone(subject, text, Limits()))
    loss = Loss(lab, [], lab.batches)
    domains = text.domains_of(lab.batches)
    by_domain = {
        name: loss.average(np.array([float(one == name) for one in domains]))
        for name in dict.fromkeys(domains)
    }
    session = OwnSession(model, batch)
    with torch.no_grad():
        state = session.size(session.open())
    return Measured(
        streams=subject.facts.streams,
        parameters=subject.facts.parameters,
        loss=loss.plain,
        loss_by_domain=by_domain,
        reads_per_second=reads[0],
        reads_ends=reads[1],
        trains_per_second=trains[0],
        trains_ends=trains[1],
        state_bytes=state // batch.tokens.numel(),
        kept_bytes=_kept(model, batch) // batch.tokens.numel(),
    )


def _reading(model: Model, batch: Batch) -> Callable[[], Any]:
    def run() -> None:
        with torch.no_grad():
            model(batch.tokens)

    return run


def _training(model: Model, batch: Batch) -> Callable[[], Any]:
    def run() -> None:
        own_loss(OwnSession(model, batch)).backward()
        model.zero_grad(set_to_none=True)

    return run


def _kept(model: Model, batch: Batch) -> int:
    """Bytes of all tensors that autograd keeps, each storage once."""
    own = {one.untyped_storage().data_ptr() for one in model.parameters()}
    seen: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = own_loss(OwnSession(model, batch))
    del loss
    return sum(seen.values())
