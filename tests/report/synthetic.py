"""Synthetic studies: result rows and metrics with known losses, written through the real store."""

import json
import math
from pathlib import Path
from typing import Literal

import numpy as np

from depthbench.config import digest_of
from depthbench.files import append_line, write_atomic
from depthbench.shapes import Shape
from depthbench.study.store import DomainLoss, Machine, Parameters, Row, Store

NATS_PER_BIT = math.log(2)
SHAPES = ((2, 136), (4, 96), (8, 68), (16, 48))
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
    width: int | None = None,
    seed: int = 0,
    rate: float = 4e-3,
    phase: Literal["search", "shared"] = "shared",
    status: Literal["done", "diverged", "failed"] = "done",
    reason: str | None = None,
    tokens: int = 2_000_000,
    study: str = "synthetic",
    data_hash: str = "d0d0cafe1234",
) -> Row:
    """One row whose validation loss is ``bits`` per byte of a byte-level model."""
    width = width or 2 * round(272 / layers / 2)
    loss = None
    if bits is not None:
        loss = DomainLoss(
            nats_per_token=bits * NATS_PER_BIT, bits_per_byte=bits, tokens=9000, bytes=9000
        )
    design = {"name": label}
    config = {"design": design, "layers": layers, "width": width, "lr": rate, "seed": seed}
    return Row(
        id=digest_of(config | {"phase": phase, "label": label, "tokens": tokens}),
        study=study,
        label=label,
        design=design,
        shape=Shape(layers=layers, width=width, heads=1, kv_heads=1, ffn=3 * width, vocab=257),
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
        seconds=120.0,
        tokens_per_second=16_000.0,
        data_hash=data_hash,
        config=config,
        machine=MACHINE,
        finished="2026-01-01T00:00:00Z",
    )


def write_study(folder: Path, rows: list[Row], name: str = "synthetic") -> Path:
    """A study folder as the engine leaves it."""
    write_atomic(
        folder / "study.toml",
        f"name = {json.dumps(name)}\nseeds = [0, 1, 2]\n\n[train]\nbatch = 16\nlength = 128\n",
    )
    store = Store(folder)
    for one in rows:
        store.add(one)
        write_metrics(folder, one)
    return folder


def write_metrics(folder: Path, one: Row, records: int = 60) -> None:
    """A training curve that ends at the row's loss; a diverged one climbs and ends in None."""
    noise = np.random.default_rng([one.seed, one.shape.layers, len(one.label)])
    final = one.loss.nats_per_token if one.loss else 6.5
    last = records if one.status == "done" else records // 3
    for index in range(1, last + 1):
        share = index / records
        loss = final + (5.5 - final) * math.exp(-6 * share) + noise.normal(0, 0.02)
        broken = one.status == "diverged" and index == last
        append_line(
            folder / "trials" / one.id / "metrics.jsonl",
            {
                "step": index * 16,
                "tokens": index * 16 * 2048,
                "train_loss": None if broken else loss,
                "learning_rate": one.learning_rate,
                "grad_norm": 1.0,
            },
        )


def rich_rows(study: str = "synthetic") -> list[Row]:
    """Four designs × four shapes × three seeds with a search; some diverged, one failed."""
    curves = {
        "prenorm": (2.280, 2.205, 2.250, 2.365),
        "hc": (2.250, 2.140, 2.130, 2.120),
        "attnres": (2.300, 2.200, 2.190, 2.195),
        "deepnorm": (2.330, 2.270, 2.310, 2.420),
    }
    rows = []
    for label, curve in curves.items():
        search = {1e-3: 0.16, 2e-3: 0.06, 4e-3: 0.0 if label != "attnres" else 0.03, 8e-3: 0.02}
        if label == "attnres":
            search[8e-3] = 0.0
        for rate, worse in search.items():
            lost = rate == 8e-3 and label in ("prenorm", "deepnorm")
            rows.append(
                row(
                    label,
                    8,
                    None if lost else curve[2] + worse,
                    width=68,
                    rate=rate,
                    phase="search",
                    status="diverged" if lost else "done",
                    reason="loss not finite at step 310" if lost else None,
                    study=study,
                )
            )
        best = 8e-3 if label == "attnres" else 4e-3
        for (layers, width), loss in zip(SHAPES, curve, strict=True):
            for seed, offset in enumerate((-0.008, 0.0, 0.008)):
                lost = label == "deepnorm" and layers == 16 and seed == 1
                failed = label == "prenorm" and layers == 4 and seed == 2
                rows.append(
                    row(
                        label,
                        layers,
                        None if lost or failed else loss + offset,
                        width=width,
                        seed=seed,
                        rate=best,
                        status="diverged" if lost else "failed" if failed else "done",
                        reason="loss above start for 200 steps"
                        if lost
                        else "worker was killed"
                        if failed
                        else None,
                        study=study,
                    )
                )
    return rows
