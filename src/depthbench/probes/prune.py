"""A model without some of its blocks, as a model of its own."""

from collections.abc import Sequence

import torch

from depthbench.config import Frozen
from depthbench.errors import DepthbenchError
from depthbench.probes.batch import Batch
from depthbench.probes.choose import chosen
from depthbench.probes.heal import HealConfig, heal
from depthbench.probes.lab import Alone, Lab, Progress
from depthbench.probes.measures import Loss
from depthbench.probes.program import program_of
from depthbench.probes.subject import Subject, SubjectFacts
from depthbench.probes.text import Text, TextFacts
from depthbench.probes.walk import Limits

SAME = 1e-4
"""Largest difference of logits, over the largest logit, of a smaller model and the program that it
is: float32 in other orders."""


class Pruned(Frozen):
    """What was left out, and what it cost. Losses in nats per token."""

    format: int = 1
    by: str
    kept: tuple[int, ...]
    left_out: tuple[int, ...]
    loss_before: float
    loss_after: float
    loss_healed: float | None = None
    bits_per_byte_before: float | None
    bits_per_byte_after: float | None
    bits_per_byte_healed: float | None = None
    heal: HealConfig
    heal_losses: tuple[float, ...] = ()
    source: SubjectFacts
    text: TextFacts


class PrunedInto(Pruned):
    """What ``prune --json`` prints."""

    folder: str
    """Where the smaller model lies."""


def prune(
    subject: Subject,
    text: Text,
    keep: int,
    by: str,
    config: HealConfig,
    progress: Progress = lambda *_: None,
) -> tuple[Subject, Pruned]:
    """The subject with ``keep`` blocks chosen by ``by``, and the losses before and after.

    With healing, every other batch is trained on, and losses are of the rest. Raises
    `DepthbenchError` if the smaller model is not what the program without these blocks is.
    """
    measured, training = _split(text, config)
    lab = _lab(subject, measured, progress)
    kept = chosen(lab, keep, by)
    loss = Loss(lab, [program_of(kept, lab.layers)], lab.batches)
    small = subject.smaller(kept)
    _check_same(subject, small, kept, measured.batches[0])
    after = _loss(small, measured, progress)
    losses: list[float] = []
    healed = None
    if config.steps:
        total = config.steps
        losses = heal(small, training, config, lambda step, _: progress("healing", step, total))
        healed = _loss(small, measured, progress)
    found = Pruned(
        by=by,
        kept=tuple(kept),
        left_out=tuple(block for block in range(lab.layers) if block not in kept),
        loss_before=loss.plain,
        loss_after=after.plain,
        loss_healed=None if healed is None else healed.plain,
        bits_per_byte_before=loss.bits_per_byte,
        bits_per_byte_after=after.bits_per_byte,
        bits_per_byte_healed=None if healed is None else healed.bits_per_byte,
        heal=config,
        heal_losses=tuple(losses),
        source=subject.facts,
        text=measured.facts,
    )
    return small, found


def _lab(subject: Subject, text: Text, progress: Progress) -> Lab:
    return Lab(subject, text, Alone(subject, text, Limits()), progress=progress)


def _loss(subject: Subject, text: Text, progress: Progress) -> Loss:
    lab = _lab(subject, text, progress)
    return Loss(lab, [], lab.batches)


def _split(text: Text, config: HealConfig) -> tuple[Text, Sequence[Batch]]:
    """What is measured on, and what is trained on."""
    if not config.steps:
        return text, ()
    measured = text.batches[::2]
    facts = text.facts.model_copy(
        update={
            "documents": sum(batch.rows for batch in measured),
            "tokens": sum(int(batch.valid.sum()) for batch in measured),
            "predicted": sum(int(batch.predicted.sum()) for batch in measured),
            "bytes": None
            if text.facts.bytes is None
            else sum(int((batch.sizes[:, 1:] * batch.predicted).sum()) for batch in measured),
            "origin": f"every other batch of {text.facts.origin}",
        }
    )
    return Text(measured, facts, text.domain_of), text.batches[1::2]


@torch.no_grad()
def _check_same(subject: Subject, small: Subject, kept: Sequence[int], batch: Batch) -> None:
    session = subject.session(batch)
    state = session.open()
    for call in program_of(kept, subject.layers):
        state = session.run(call, state, 1)
    expected = session.logits(session.readout(state))
    found = small.session(batch).own_logits()
    apart = ((found - expected).abs().max() / expected.abs().max()).item()
    if not apart <= SAME:
        raise DepthbenchError(
            f"{subject.facts.label}: a block's work depends on its place, so the model of "
            f"{len(kept)} blocks differs from the program without the others (logits by "
            f"{apart:.1e} of the largest). Choose another model, or train the shallow one anew"
        )
