"""Alterations of what only saves time or memory, each seen by the tests that it changes nothing."""

from tests.contract.mutant import Mutant

_COMPILE = "train/test_compile.py"
_FUSED = "nn/test_fused.py"
_LOSS = "nn/test_loss.py"

SPEED = [
    Mutant(
        "recomputation stops in the middle of a graph",
        "nn/recompute.py",
        "set_checkpoint_early_stop(context.compiled is None)",
        "set_checkpoint_early_stop(True)",
        _COMPILE,
    ),
    Mutant(
        "a block's number in its graph",
        "nn/block.py",
        "enumerate(block.pairs()):",
        "enumerate(block.pairs(), 0 * block.number):",
        _COMPILE,
    ),
    Mutant(
        "nobody is told that nothing is compiled",
        "train/step.py",
        "self.notes.append(f\"compile: torch's compiler failed",
        "logger.info(f\"compile: torch's compiler failed",
        _COMPILE,
    ),
    Mutant(
        "a kernel's mixing matrix is not turned",
        "nn/fused.py",
        ".transpose(-1, -2).contiguous()",
        ".contiguous()",
        _FUSED,
    ),
    Mutant(
        "a kernel's loss without the factor",
        "nn/fused.py",
        "(x if factor == 1.0 else factor * x)",
        "x",
        _FUSED,
    ),
    Mutant(
        "a kernel is given a logit that it does not know of",
        "designs/block_attnres.py",
        "plain_logits: ClassVar[bool] = False",
        "plain_logits: ClassVar[bool] = True",
        _FUSED,
    ),
    Mutant(
        "a chunk's gradient is that of its own mean",
        "nn/loss.py",
        "slope.mul_(factor / len(rows))",
        "slope.mul_(factor / chunk)",
        _LOSS,
    ),
    Mutant(
        "rows that pad the vocabulary are predicted",
        "nn/loss.py",
        "rows, own = x.flatten(0, 1), weight[:vocab]",
        "rows, own = x.flatten(0, 1), weight",
        _LOSS,
    ),
]
