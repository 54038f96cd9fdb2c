"""Mutants of parametrizations: each rule left out or turned round."""

from tests.contract.mutant import Mutant

_RULES = "nn/parametrization.py"
_TESTS = "nn/test_parametrization.py"
_GROUPS = "train/test_optim.py"

PARAMETRIZATION = [
    Mutant(
        "branch outputs without their factor",
        "nn/block.py",
        "y = y * block.branch_factor",
        "y = y * 1.0",
        _TESTS,
    ),
    Mutant(
        "logits without their factor",
        "nn/ends.py",
        "self.factor * logits",
        "1.0 * logits",
        _TESTS,
    ),
    Mutant(
        "start of matrices in blocks at every width the same",
        "nn/model.py",
        "std * self.scaling.std",
        "std * 1.0",
        _TESTS,
    ),
    Mutant(
        "learning rate grows with the width",
        _RULES,
        "self.alpha) - 1) / wide",
        "self.alpha) - 1) * wide",
        _TESTS,
    ),
    Mutant(
        "learning rate of the branches grows with depth",
        _RULES,
        "else self.alpha) - 1)",
        "else self.alpha))",
        _TESTS,
    ),
    Mutant(
        "eps of gains as outside the blocks",
        _RULES,
        "self.branch if behind else 1.0",
        "1.0",
        _TESTS,
    ),
    Mutant(
        "alphas exchanged",
        _RULES,
        '"depth_mup": 0.5, "completep": 1.0',
        '"depth_mup": 1.0, "completep": 0.5',
        _TESTS,
    ),
    Mutant(
        "weight decay as at the base",
        "train/optim.py",
        "train.weight_decay * decay",
        "train.weight_decay",
        _GROUPS,
    ),
    Mutant(
        "one learning rate for all groups",
        "train/step.py",
        'rate * group["rate_factor"]',
        "rate",
        _GROUPS,
    ),
    Mutant(
        "mixing of streams learns at the branches' rate",
        "designs/hc.py",
        "replace(identity, carried=True)",
        "identity",
        _GROUPS,
    ),
]
