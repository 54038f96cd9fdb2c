"""Trials of ours, ready to be trained on; and all of a re-trained ablation."""

from collections.abc import Sequence
from pathlib import Path

import torch

from depthbench.data.dataset import default_cache, find_dataset
from depthbench.errors import DepthbenchError
from depthbench.machine import choose_device
from depthbench.probes.load import open_model
from depthbench.probes.own import OwnSubject, TrialForm
from depthbench.probes.text import TextConfig
from depthbench.streams.ablation import Ablation, AblationPart, Plan
from depthbench.streams.retrain import Bench, Hear, Make, Row, retrain
from depthbench.streams.retrained import Retrained, RetrainedPart
from depthbench.streams.sites import Removal
from depthbench.streams.tune import Course, TuneConfig
from depthbench.streams.verdict import Verdict


def open_bench(
    source: str, config: TextConfig, device: str = "cpu", dtype: str = "float32"
) -> Bench:
    """The trial in a folder, with its text and its training data.

    Raises `DepthbenchError` for anything else than a trial of this package.
    """
    opened = open_model(source, device=device, dtype=dtype)
    subject = opened.subject
    if not isinstance(subject, OwnSubject) or not isinstance(subject.form, TrialForm):
        raise DepthbenchError(
            f"{source}: only a run or trial of this package can be trained on, for its recipe and "
            "data are known. Name the folder of a run"
        )
    trial = subject.form.config
    dataset = find_dataset(trial.data_hash, default_cache())
    course = Course(trial, dataset, torch.device(choose_device(device)))
    return Bench(subject, opened.text(config), course)


def retrained_ablation(
    make: Make,
    bench: Bench,
    asked: Ablation,
    seeds: Sequence[int],
    tune: TuneConfig,
    folder: Path | None = None,
    *,
    workers: int = 1,
    hear: Hear = lambda *_: None,
) -> Retrained:
    """Each stream that is ``asked`` for over each range, what `Ablation.keep` leaves, and then
    pairs of streams that most ranges do without, over all blocks.

    What was trained stands in the probe that is returned; run it on ``bench`` for the result.
    """
    subject = bench.subject
    plan, layers = Plan(asked, subject.facts.streams, subject.layers), subject.layers
    spans = [*([] if plan.whole is None else [plan.whole]), *plan.spans]
    singles = [
        plan.single("zero", one, span) for one in plan.chosen for span in dict.fromkeys(spans)
    ]
    sets = [one for one in (plan.together, plan.kept) if one is not None]
    batches = len(bench.lab().leading(len(singles)))
    told = {"about": bench.about, "batches": batches, "workers": workers, "hear": hear}
    rows = retrain(make, list(dict.fromkeys([*singles, *sets])), seeds, tune, folder, **told)
    part = isinstance(asked, AblationPart)
    # pairs are for the verdict, which a part is no evidence for
    pairs = [] if part else _suspected(rows, plan.chosen, spans, layers)
    if pairs:
        known = {(row.removal, row.seed) for row in rows}
        more = retrain(make, pairs, seeds, tune, folder, **told)
        rows += [row for row in more if (row.removal, row.seed) not in known]
    kind = RetrainedPart if part else Retrained
    return kind(rows=tuple(rows), tune=tune, batches=batches)


def _suspected(
    rows: Sequence[Row], streams: Sequence[int], spans: Sequence[tuple[int, int]], layers: int
) -> list[Removal]:
    """Pairs of streams that most ranges do without."""
    thresholds = Verdict()
    control = {row.seed: sum(row.nats) for row in rows if row.removal is None}
    free: list[int] = []
    for one in streams:
        changes = []
        for start, stop in dict.fromkeys(spans):
            if len(set(spans)) > 1 and (start, stop) == (0, layers):
                continue
            own = [
                sum(row.nats) / control[row.seed] - 1
                for row in rows
                if row.removal == Removal(streams=(one,), start=start, stop=stop)
            ]
            changes.append(sum(own) / len(own))
        if thresholds.free_share(tuple(changes)) > thresholds.share:
            free.append(one)
    return [
        Removal(streams=(one, other), stop=layers) for one in free for other in free if one < other
    ]
