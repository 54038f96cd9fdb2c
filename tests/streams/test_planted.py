"""Trained models whose truth was planted: what the whole chain says of them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from depthbench.designs import parse_design
from depthbench.nn.model import Model, ModelConfig
from depthbench.probes.batch import Batch
from depthbench.probes.load import load
from depthbench.probes.loss import mean_loss
from depthbench.probes.own import OwnSession, OwnSubject, TrialForm
from depthbench.probes.result import ProbeResult
from depthbench.shapes import Shape
from depthbench.streams.ablation import Ablation
from depthbench.streams.bench import retrained_ablation
from depthbench.streams.evidence import evidence_of
from depthbench.streams.flat import Validation
from depthbench.streams.linear import Question, read_classes
from depthbench.streams.merge.copies import Copies
from depthbench.streams.merge.plan import Alike
from depthbench.streams.merge.run import merge
from depthbench.streams.retrain import Bench
from depthbench.streams.sample import SampleConfig, Sampled
from depthbench.streams.shared import Shared
from depthbench.streams.tune import Course, Pupil, TuneConfig, tune
from depthbench.streams.verdict import Verdict
from depthbench.train.config import TrainConfig, TrialConfig
from tests.streams import language
from tests.streams.planted import lab_of, tie

SHAPE = Shape(layers=4, width=48, heads=4, kv_heads=4, ffn=96, vocab=language.VOCAB)
LENGTH = 62
FLAT = Validation(losses=(1.0,) * 5, wanted=5)
TUNE = TuneConfig(steps=40, rate=0.1, warmup=4)
PIECES = 2
"""Ranges of blocks."""


def bench_of(design: object, seed: int = 0) -> Bench:
    """An untrained model, with text and what it trains on."""
    model = ModelConfig(shape=SHAPE, design=parse_design(design))
    train = TrainConfig(tokens=10**6, sequences=8, length=LENGTH, dtype="float32")
    config = TrialConfig(model=model, train=train, data_hash="language", learning_rate=5e-3, seed=0)
    rows, domains = language.rows_of(36, LENGTH)
    built = Model.build(model, seed=seed)
    course = Course(config, language.Language(), torch.device("cpu"))
    return again(
        Bench(
            OwnSubject(built, "planted", (), TrialForm(config)),
            lab_of(built, rows, domains).text,
            course,
        )
    )


def again(bench: Bench) -> Bench:
    """The same with facts of the weights as they are now."""
    subject = bench.subject
    fresh = OwnSubject(subject.model, "planted", (), subject.form)
    return Bench(fresh, bench.text, bench.course)


def learn(bench: Bench, steps: int, hold: object = None) -> Bench:
    """Train; ``hold()`` is called after every step."""
    model = bench.subject.model

    def loss(batch: Batch, step: int) -> torch.Tensor:
        session = OwnSession(model, batch)
        logits = session.own_logits()[:, :-1]
        return functional.cross_entropy(logits.flatten(0, 1), batch.tokens[:, 1:].flatten())

    config = TuneConfig(steps=steps, rate=1.0, warmup=20)
    called = hold if callable(hold) else (lambda: None)
    tune(Pupil(model), bench.course, config, loss, hear=lambda step, found: called())
    return again(bench)


def judged(bench: Bench, seeds: int = 3) -> tuple[ProbeResult, dict[str, ProbeResult]]:
    """Everything that leads to a verdict, and the verdict."""
    lab, streams = bench.lab(), bench.subject.facts.streams
    asked = Ablation(ranges=PIECES)
    trained = retrained_ablation(lambda: bench, bench, asked, range(seeds), TUNE)
    sample = SampleConfig(tokens=2048, depths=5)
    probes = [asked, Shared(sample=sample, components=8, compared=0), trained]
    results = {probe.name: probe.run(lab) for probe in probes}
    verdict = Verdict(evidence=evidence_of(results, streams), validation=FLAT)
    return verdict.run(lab), results


@pytest.fixture(scope="module")
def copied() -> Bench:
    """`hc` trained with streams 2 and 3 held equal."""
    bench = bench_of("hc")

    def hold() -> None:
        for _, _, connection in bench.subject.model.sites():
            tie(connection, 2, 3)

    return learn(bench, 300, hold)


@pytest.mark.slow
def test_tied_copies_are_found_and_merged_without_loss(copied: Bench, tmp_path: Path) -> None:
    assert Alike.measured(copied.lab()).copies() == [(2, 3)]
    verdict, results = judged(copied)
    said = " ".join(verdict.words)
    assert "Streams 2 and 3 are multiples of each other at every site" in said
    assert "Stream 3 is a copy and can be merged in closed form" in said
    assert "streams merge planted --pairs 3:2 --way copies --out smaller" in said
    assert verdict.number("mergeable").value is not None
    merged = merge(copied, Copies(), {3: 2}, tmp_path / "out")
    assert merged.after.loss == pytest.approx(merged.before.loss, abs=1e-5)
    assert merged.after.streams == 3
    assert load(tmp_path / "out").facts.weights_hash == merged.weights_hash
    # (c) the copy is present but replaceable: at once it costs much, after training little
    hard = results["retrained"].number("hard_whole_3").value
    trained = results["retrained"].number("retrained_whole_3").value
    assert hard is not None
    assert trained is not None
    assert hard > 1.0
    assert trained < 0.2 * hard
    assert "present, but replaceable" in " ".join(results["retrained"].words)
    evidence = evidence_of(results, 4)
    assert evidence is not None
    assert evidence.seeds == 3
    case = evidence.cases[3]
    # the second decides
    curve = results["retrained"].curve("retrained_3")
    assert case.changes == pytest.approx([(one or 0.0) / 100 for one in curve.values])
    assert case.hard != case.changes
    without = Verdict(evidence=evidence_of({k: results[k] for k in ("ablation", "shared")}, 4))
    assert "too few seeds: re-trained with 0 of 3" in without.missing(copied.subject)[0]


@pytest.mark.slow
def test_streams_that_carry_four_kinds_are_all_kept() -> None:
    bench = bench_of({"name": "hc", "mix": False, "dynamic": False})
    model = bench.subject.model
    with torch.no_grad():
        for site, _, connection in model.sites():
            own = torch.eye(4)[site // 2]
            connection.get_parameter("static_read").copy_(own)
            connection.get_parameter("static_write").copy_(own)
    fixed = [p for name, p in model.named_parameters() if "static_" in name]
    kept = [one.clone() for one in fixed]
    kinds = ("token", "chunk", "sentence", "task")
    heads = nn.ModuleList([nn.Linear(SHAPE.width, language.VOCAB) for _ in kinds])

    def loss(batch: Batch, step: int) -> torch.Tensor:
        session = OwnSession(model, batch)
        state = session.open()
        for block in model.blocks:
            state = block(state, session.context(1))
        total = mean_loss(batch, session.logits(session.readout(state)))
        for stream, kind in enumerate(kinds):
            wanted = language.labels(batch.tokens)[kind]
            logits = heads[stream](state[:, 2:, stream])
            total = total + functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())
        return total

    config = TuneConfig(steps=300, rate=1.0, warmup=20)
    tune(
        Pupil(model, heads),
        bench.course,
        config,
        loss,
        trained=lambda step, name: "static_" not in name,
    )
    assert all(torch.equal(one, own) for one, own in zip(fixed, kept, strict=True))
    bench = again(bench)
    verdict, _ = judged(bench)
    assert verdict.number("mergeable").value == 0
    said = " ".join(verdict.words)
    assert "None of 4 streams can be merged" in said
    # each stream says most of its own kind
    lab = bench.lab()
    z = lab.joined(Sampled(depth=SHAPE.layers, every=1))["z"]
    every = torch.cat([batch.tokens for batch in bench.text.batches])
    documents = np.repeat(np.arange(len(every)), LENGTH - 3)
    inside = np.arange(len(every) * (LENGTH - 1)).reshape(-1, LENGTH - 1)[:, 2:].ravel()
    for stream, kind in enumerate(kinds):
        wanted = language.labels(every)[kind][:, :-1].flatten().numpy()
        asked = Question(wanted, documents % 2 == 1, documents)
        own = [
            read_classes(np.ascontiguousarray(z[one].T[inside]), asked, control=False).nats
            for one in range(4)
        ]
        assert int(np.argmax(own)) == stream, (kind, own)


@pytest.mark.slow
def test_a_task_stream_that_nothing_writes_is_idle() -> None:
    bench = bench_of("cascade")
    model = bench.subject.model

    def hold() -> None:
        with torch.no_grad():
            model.design.get_parameter("readout_gates")[3] = 0
            for _, _, connection in model.sites():
                connection.get_parameter("read_gates")[3] = 0
                connection.get_parameter("write_gates")[3] = 0

    hold()
    bench = learn(bench, 200, hold)
    verdict, results = judged(bench)
    assert results["ablation"].number("zero_3").value == pytest.approx(0.0, abs=1e-6)
    # trained on, the control may learn to read it and the pupil without it cannot: a quarter of the
    # change that still counts as none
    assert results["retrained"].number("retrained_whole_3").value == pytest.approx(0.0, abs=5e-4)
    said = " ".join(verdict.words)
    assert "Stream task" in said
    assert "nothing reads it" in said
    assert "does not change with depth" in said
