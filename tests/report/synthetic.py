"""Synthetic studies: planned trials with known losses, written as the engine leaves them."""

import json
import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tomli_w

from depthbench.config import digest_of
from depthbench.files import write_atomic
from depthbench.shapes import Shape
from depthbench.study.config import StudyConfig
from depthbench.study.plan import Planned, ResolvedStudy, plan
from depthbench.study.store import DomainLoss, Machine, Parameters, Row
from depthbench.train.config import TrainConfig
from depthbench.train.health.findings import report_of
from depthbench.train.health.history import History
from depthbench.train.health.spikes import Spike

NATS_PER_BIT = math.log(2)
SHAPES = ((2, 136), (4, 96), (8, 68), (16, 48))
CURVES = {
    "prenorm": (2.280, 2.205, 2.250, 2.365),
    "hc": (2.250, 2.140, 2.130, 2.120),
    "attnres": (2.300, 2.200, 2.190, 2.195),
    "deepnorm": (2.330, 2.270, 2.310, 2.420),
}
SEED_OFFSETS = (-0.008, 0.0, 0.008)
DATA_HASH = "d0d0cafe1234"
SPIKE = Spike(signal="loss", step=470, value=9.5, usual=3.25, z=21.5, until=480)
MACHINE = Machine(
    host="bench",
    platform="Linux",
    processor="test processor",
    cores=2,
    device="cpu",
    dtype="float32",
    python="3.11.2",
    torch="2.9.0",
    depthbench="0.1.0",
    commit="0123abc",
)


def row(
    label: str,
    layers: int,
    bits: float | None,
    *,
    shape: Shape | None = None,
    seed: int = 0,
    rate: float = 4e-3,
    phase: Literal["search", "shared"] = "shared",
    status: Literal["done", "diverged", "failed"] = "done",
    reason: str | None = None,
    tokens: int = 2_000_000,
    study: str = "synthetic",
    data_hash: str = DATA_HASH,
    planned: Planned | None = None,
) -> Row:
    """One row whose validation loss is ``bits`` per byte of a byte-level model."""
    width = 2 * round(272 / layers / 2)
    shape = shape or Shape(
        layers=layers, width=width, heads=1, kv_heads=1, ffn=3 * width, vocab=257
    )
    loss = None
    if bits is not None:
        loss = DomainLoss(
            nats_per_token=bits * NATS_PER_BIT, bits_per_byte=bits, tokens=9000, bytes=9000
        )
    design = {"name": label}
    config: dict[str, Any] = {
        "design": design,
        "shape": shape.resolved(),
        "rate": rate,
        "seed": seed,
        "tokens": tokens,
    }
    if planned:
        config = planned.config.resolved()
    return Row(
        id=planned.id if planned else digest_of(config),
        study=study,
        label=label,
        design=design,
        shape=shape,
        learning_rate=rate,
        seed=seed,
        phase=phase,
        status=status,
        reason=reason,
        parameters=Parameters(total=500_000, backbone=450_000, embedding_and_head=50_000, own=0),
        steps=tokens // 2048,
        tokens=tokens,
        loss=loss,
        domains={} if loss is None else {"code": loss, "math": loss},
        unigram_bits_per_byte=4.8,
        final_train_loss=None if bits is None else bits * NATS_PER_BIT,
        seconds=30.0 * layers,
        tokens_per_second=64_000.0 / layers,
        data_hash=data_hash,
        config=config,
        machine=MACHINE,
        finished="2026-01-01T00:00:00Z",
    )


def resolved_study(title: str = "", seeds: int = 3) -> ResolvedStudy:
    """Four designs × four shapes × seeds, four learning rates."""
    shapes = tuple(
        Shape(layers=layers, width=width, heads=2, kv_heads=2, ffn=3 * width, vocab=257)
        for layers, width in SHAPES
    )
    sizes = [shape.resolved() for shape in shapes]
    for size in sizes:
        del size["vocab"]
    study = StudyConfig.parse(
        {
            "name": "synthetic",
            "title": title,
            "designs": list(CURVES),
            "shapes": {"sizes": sizes},
            "search": {"learning_rates": [1e-3, 2e-3, 4e-3, 8e-3], "layers": 8},
            "seeds": list(range(seeds)),
        }
    )
    return ResolvedStudy(study=study, data_hash=DATA_HASH, shapes=dict.fromkeys(CURVES, shapes))


def rich_rows(resolved: ResolvedStudy | None = None) -> list[Row]:
    """Every planned trial: three search trials diverge, one seed diverges and one fails."""
    resolved = resolved or resolved_study()
    search = [_outcome(trial) for trial in plan(resolved, [])]
    there = {row.id for row in search}
    return search + [_outcome(trial) for trial in plan(resolved, search) if trial.id not in there]


def _outcome(trial: Planned) -> Row:
    config = trial.config
    shape, rate, seed = config.model.shape, config.learning_rate, config.seed
    depth = SHAPES.index((shape.layers, shape.width))
    bits = CURVES[trial.label][depth] + SEED_OFFSETS[seed % 3] + _worse(trial.label, rate)
    where = (trial.label, shape.layers, seed)
    status: Literal["done", "diverged", "failed"] = "done"
    reason = None
    if rate == 8e-3 and trial.label in ("prenorm", "deepnorm"):
        status, reason = "diverged", "loss not finite at step 310"
    elif where == ("deepnorm", 16, 1):
        status, reason = "diverged", "loss above start for 200 steps"
    elif where == ("prenorm", 4, 2):
        status, reason = "failed", "worker was killed"
    return row(
        trial.label,
        shape.layers,
        bits if status == "done" else None,
        shape=shape,
        seed=seed,
        rate=rate,
        phase=trial.phase,
        status=status,
        reason=reason,
        planned=trial,
    )


def _worse(label: str, rate: float) -> float:
    """What a learning rate costs in bits per byte: 4e-3 is best, for attnres 8e-3."""
    if label == "attnres":
        return {1e-3: 0.16, 2e-3: 0.06, 4e-3: 0.03, 8e-3: 0.0}[rate]
    return {1e-3: 0.16, 2e-3: 0.06, 4e-3: 0.0, 8e-3: 0.02}[rate]


def write_study(
    folder: Path, rows: list[Row] | None = None, title: str = "", seeds: int = 3
) -> Path:
    """A study folder as the engine leaves it."""
    resolved = resolved_study(title, seeds)
    write_atomic(folder / "study.toml", tomli_w.dumps(without_none(resolved.resolved())))
    rows = rich_rows(resolved) if rows is None else rows
    results = "".join(f"{json.dumps(one.resolved())}\n" for one in rows)
    write_atomic(folder / "results.jsonl", results)
    for one in rows:
        write_metrics(folder, one)
    return folder


def without_none(data: Any) -> Any:
    """TOML has no null."""
    if isinstance(data, dict):
        return {key: without_none(value) for key, value in data.items() if value is not None}
    if isinstance(data, list):
        return [without_none(value) for value in data]
    return data


def write_metrics(folder: Path, one: Row, records: int = 60) -> None:
    """A training curve that ends at the row's loss; a diverged one climbs and ends in None."""
    noise = np.random.default_rng([one.seed, one.shape.layers, len(one.label)])
    final = one.loss.nats_per_token if one.loss else 6.5
    lines: list[str] = []
    history = History(TrainConfig())
    last = records if one.status == "done" else records // 3
    for index in range(1, last + 1):
        share = index / records
        loss = final + (5.5 - final) * math.exp(-6 * share) + noise.normal(0, 0.02)
        broken = one.status == "diverged" and index == last
        record = {
            "step": index * 16,
            "tokens": index * 16 * 2048,
            "train_loss": None if broken else loss,
            "learning_rate": one.learning_rate,
            "grad_norm": 1.0,
        }
        if index % 4 == 0:
            record["health"] = made_up_health(one, index)
        if (one.label, one.seed, index) == ("hc", 0, 30):
            record["spikes"] = [SPIKE.resolved()]
        history.add(record)
        lines.append(json.dumps(record))
    path = folder / "trials" / one.id / "metrics.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if one.status == "diverged":
        history.diverged = (history.step, one.reason or "")
    if one.status != "failed":
        report_of(history).write(path.parent)


def made_up_health(one: Row, index: int) -> dict[str, Any]:
    """Powers of ten by depth, so that maps are told apart; the bottom of `deepnorm` starves."""
    layers = one.shape.layers
    blocks = [10.0**-b for b in range(layers)]
    low = 1e-9 if one.label == "deepnorm" else 1.0
    return {
        "gradient_norm": blocks,
        "update_over_weight": [1e-3] * layers,
        "second_moment": [low, *[1.0] * (layers - 1)],
        "output_norm": [float(index)] * (2 * layers),
        "output_variance": [1.0] * (2 * layers),
        "state_rms": [0.1] * (layers + 1),
        "state_variance": [0.01] * (layers + 1),
        "neighbour_cosine": [0.5] * layers,
    }
