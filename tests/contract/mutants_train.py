"""Alterations of checkpoints and of going on, each seen by the tests of resuming."""

from tests.contract.mutant import Mutant

_RESUME = "train/test_resume.py"

TRAIN = [
    Mutant(
        "optimizer starts anew after a resume",
        "train/loop.py",
        "restore_optimizer(model, optimizer, moments)",
        "pass",
        _RESUME,
    ),
    Mutant(
        "metrics of lost steps are kept",
        "train/metrics.py",
        'if one["step"] <= step]',
        "]",
        _RESUME,
    ),
    Mutant(
        "divergence forgets its count",
        "train/loop.py",
        'self.divergence.above = state["above_start"]',
        "pass",
        _RESUME,
    ),
    Mutant(
        "an altered file is used",
        "train/checkpoint.py",
        "_digest(path / name) != digest]",
        "not (path / name).exists()]",
        _RESUME,
    ),
    Mutant(
        "a checkpoint of another config is used",
        "train/checkpoint.py",
        "if found.manifest.config == config:",
        "if found.manifest.config:",
        _RESUME,
    ),
    Mutant(
        "parts of a batch weigh too much",
        "train/step.py",
        "(total if share == 1 else share * total).backward()",
        "total.backward()",
        _RESUME,
    ),
]
