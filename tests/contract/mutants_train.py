"""Alterations of checkpoints and of going on, each seen by the tests of resuming."""

from tests.contract.mutant import Mutant

_RESUME = "train/test_resume.py"
_TEAMS = "train/test_teams.py"

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
    Mutant(
        "every process takes the same rows",
        "train/team.py",
        "start = self.rank * share",
        "start = 0",
        _TEAMS,
    ),
    Mutant(
        "losses are the first process's",
        "train/step.py",
        "return self.team.totals([sum(numbers) / len(numbers)])[0] / self.team.size",
        "return sum(numbers) / len(numbers)",
        _TEAMS,
    ),
    Mutant(
        "every process validates on all texts and adds them up",
        "train/step.py",
        "self.team.rank :: self.team.size",
        "::1",
        _TEAMS,
    ),
    Mutant(
        "gradients stay apart",
        "train/sharded.py",
        "model.set_requires_gradient_sync(last)",
        "model.set_requires_gradient_sync(False)",
        _TEAMS,
    ),
    Mutant(
        "a part is filled with the start of another",
        "train/sharded.py",
        "return distribute_tensor(own, like.device_mesh, like.placements, src_data_rank=None)",
        "return distribute_tensor(own.flip(0), like.device_mesh, like.placements,"
        " src_data_rank=None)",
        _TEAMS,
    ),
    Mutant(
        "the head has a matrix of its own",
        "nn/model.py",
        "if config.backbone.tied_head",
        "if not config.backbone.tied_head",
        "nn/test_tied_head.py",
    ),
]
