"""Tiny text, data, trials and studies: everything trains in well under a second."""

import math
import random
from pathlib import Path
from typing import Any

from depthbench.data.config import DataConfig
from depthbench.data.dataset import Dataset, prepare
from depthbench.nn.count import count_parameters
from depthbench.shapes import Shape
from depthbench.study.config import StudyConfig
from depthbench.study.plan import Planned
from depthbench.study.store import DomainLoss, Machine, Row, Status
from depthbench.train.config import TrialConfig

WORDS = ("depth", "width", "stream", "token", "branch", "norm", "gate", "naïve", "café")
SHAPE = Shape(layers=2, width=16, heads=2, kv_heads=2, ffn=24, vocab=257)
TRAIN: dict[str, Any] = {
    "tokens": 512,
    "sequences": 4,
    "length": 16,
    "evaluations": 2,
    "validation_tokens": 256,
    "log_every": 1,
    "dtype": "float32",
}
"""Eight steps of 64 tokens."""


def write_text(folder: Path, seed: int = 0) -> Path:
    """A file of about 20 kB of seeded words in lines."""
    chosen = random.Random(seed)
    lines = (" ".join(chosen.choice(WORDS) for _ in range(9)) for _ in range(400))
    path = folder / "words.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def make_dataset(folder: Path, **data: Any) -> Dataset:
    """The seeded text, as bytes unless ``data`` says otherwise."""
    config = DataConfig.parse({"paths": [str(write_text(folder))]} | data)
    return prepare(config, folder / "cache")


def trial_config(dataset: Dataset, **changes: Any) -> TrialConfig:
    """A trial of ``prenorm``; ``changes`` go to the model, the training or the trial by name."""
    model = {"shape": changes.pop("shape", SHAPE), "design": changes.pop("design", "prenorm")}
    model |= {"backbone": changes.pop("backbone", "dense")}
    trial = {
        name: changes.pop(name, default) for name, default in (("learning_rate", 1e-2), ("seed", 0))
    }
    facts = {"model": model, "train": TRAIN | changes, "data_hash": dataset.manifest.hash}
    return TrialConfig.parse(facts | trial)


def study_tables(text: Path, **changes: Any) -> dict[str, Any]:
    """The tables of a study of two designs at two shapes, two learning rates and one seed."""
    tables: dict[str, Any] = {
        "name": "small",
        "designs": ["prenorm", "hc"],
        "shapes": {
            "sizes": [
                {"layers": 1, "width": 16, "heads": 2, "ffn": 24},
                {"layers": 2, "width": 8, "heads": 2, "ffn": 16},
            ]
        },
        "search": {"learning_rates": [1e-2, 2e-2]},
        "train": TRAIN,
        "data": {"paths": [str(text)]},
    }
    return tables | changes


def study_config(text: Path, **changes: Any) -> StudyConfig:
    """`study_tables` as a config."""
    return StudyConfig.parse(study_tables(text, **changes))


def row_for(planned: Planned, bits: float | None, status: Status = "done") -> Row:
    """The row of a trial that ended with ``bits`` per byte, or as ``status`` without a loss."""
    config = planned.config
    loss = None
    if bits is not None:
        nats = bits * math.log(2)
        loss = DomainLoss(nats_per_token=nats, bits_per_byte=bits, tokens=256, bytes=256)
    return Row(
        id=planned.id,
        study="small",
        label=planned.label,
        design=config.model.design.resolved(),
        shape=config.model.shape,
        learning_rate=config.learning_rate,
        seed=config.seed,
        phase=planned.phase,
        status=status,
        reason=None if status == "done" else "made up",
        parameters=count_parameters(config.model),
        steps=8,
        tokens=config.train.tokens,
        loss=loss,
        domains={} if loss is None else {"words": loss},
        seconds=1.0,
        data_hash=config.data_hash,
        config=config.resolved(),
        machine=Machine(
            host="host",
            platform="Linux",
            processor="processor",
            cores=2,
            device="cpu",
            dtype="float32",
            python="3.11",
            torch="2",
            depthbench="0",
            commit=None,
        ),
        finished="2026-01-01T00:00:00+00:00",
    )
