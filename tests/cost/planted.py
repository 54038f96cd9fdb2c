"""A stored study whose losses follow a planted law, through the real schema and store."""

from pathlib import Path

from depthbench.config import to_toml
from depthbench.files import write_atomic
from depthbench.nn.count import count_parameters
from depthbench.study.config import StudyConfig
from depthbench.study.plan import Planned, ResolvedStudy, plan, resolve
from depthbench.study.store import Store
from tests.small import TRAIN, row_for

FLOOR, FACTOR, EXPONENT = 1.2, 60.0, 0.45
WORSE = {"prenorm": 0.0, "hc": -0.03}
"""Bits per byte that a design adds to the law."""
SEEDS = (-0.004, 0.0, 0.004)
SIZES = ((1, 16), (2, 24), (2, 32), (3, 48), (4, 64))
"""Layers and width of five sizes."""


def planted_loss(label: str, parameters: int, seed: int) -> float:
    """Bits per byte of one trial."""
    return FLOOR + FACTOR * parameters**-EXPONENT + WORSE[label] + SEEDS[seed]


def planted_study() -> ResolvedStudy:
    """Two designs, five sizes, three seeds, one learning rate: 30 trials."""
    sizes = [
        {"layers": layers, "width": width, "heads": 4, "kv_heads": 2, "ffn": 2 * width}
        for layers, width in SIZES
    ]
    tables = {
        "name": "planted",
        "designs": list(WORSE),
        "shapes": {"sizes": sizes},
        "search": {"learning_rates": [1e-2]},
        "seeds": [0, 1, 2],
        "train": TRAIN,
    }
    return resolve(StudyConfig.parse(tables), data_hash="d0d0cafe1234", vocab=257)


def write_planted(folder: Path, *, seeds: int = 3) -> Path:
    """A study folder as the engine leaves it, with the first ``seeds`` seeds finished."""
    resolved = planted_study()
    write_atomic(folder / "study.toml", to_toml(resolved.resolved()))
    store = Store(folder)
    for trial in plan(resolved, []):
        if trial.config.seed < seeds:
            store.add(row_for(trial, _loss(trial)).model_copy(update={"study": "planted"}))
    return folder


def _loss(trial: Planned) -> float:
    total = count_parameters(trial.config.model).total
    return planted_loss(trial.label, total, trial.config.seed)
