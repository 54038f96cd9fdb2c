"""Result rows from outcomes."""

from collections.abc import Sequence
from datetime import UTC, datetime

from depthbench.data.dataset import Dataset
from depthbench.data.loss import LossSum
from depthbench.machine import choose_dtype, describe
from depthbench.nn.count import count_parameters
from depthbench.study.store import Machine, Phase, Row
from depthbench.train.config import TrainConfig, TrialConfig
from depthbench.train.outcome import Outcome


def make_row(
    config: TrialConfig,
    dataset: Dataset,
    outcome: Outcome | None,
    *,
    study: str,
    label: str,
    phase: Phase,
    reason: str | None,
    seconds: float,
    notes: Sequence[str] = (),
    machine: Machine | None = None,
) -> Row:
    """The row of a trial that is over; without an outcome it failed, for ``reason``.

    ``machine`` is where it ran; None = here.
    """
    total = sum(outcome.domains.values(), LossSum()) if outcome else LossSum()
    done = outcome if outcome is not None and outcome.status == "done" else None
    status = outcome.status if outcome else "failed"
    # a stopped trial goes on later: it is not over
    assert status != "stopped"
    return Row(
        id=config.id,
        study=study,
        label=label,
        design=config.model.design.resolved(),
        shape=config.model.shape,
        learning_rate=config.learning_rate,
        seed=config.seed,
        phase=phase,
        status=status,
        reason=outcome.reason if outcome else reason,
        parameters=count_parameters(config.model),
        steps=outcome.steps if outcome else 0,
        tokens=outcome.tokens if outcome else 0,
        loss=total.domain_loss() if done else None,
        domains={k: v.domain_loss() for k, v in done.domains.items()} if done else {},
        unigram_bits_per_byte=_unigram(config.train.length, config.train.validation_tokens, dataset)
        if done
        else None,
        final_train_loss=outcome.final_train_loss if outcome else None,
        seconds=seconds,
        tokens_per_second=outcome.tokens / outcome.seconds if outcome else None,
        data_hash=config.data_hash,
        config=config.resolved(),
        machine=machine or this_machine(config.train),
        notes=[*(outcome.notes if outcome else []), *notes],
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def this_machine(train: TrainConfig) -> Machine:
    """This machine, for a trial that ran on it."""
    return describe(train.device, choose_dtype(train.dtype, train.device)[0])


def _unigram(length: int, tokens: int, dataset: Dataset) -> float:
    """Bits per byte of all validation targets under their domains' own unigram distributions."""
    sets = dataset.validation(length, tokens).values()
    sizes = [int(one.target_bytes.sum()) for one in sets]
    bits = [one.unigram_bits_per_byte * size for one, size in zip(sets, sizes, strict=True)]
    return sum(bits) / sum(sizes)
