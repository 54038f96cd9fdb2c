"""Alterations of probes, each seen by the tests that hold them against loops and laws."""

from tests.contract.mutant import Mutant

_LOOPS = "probes/test_against_loops.py"
_PATHS = "probes/test_paths.py"

PROBES = [
    Mutant(
        "programs: states are joined along another axis",
        "probes/states.py",
        'frozenset({"b", "*bt", "rows", "*rows"})',
        'frozenset({"*bt", "rows", "*rows"})',
        "probes/test_walk.py",
    ),
    Mutant(
        "programs: states of different forms are joined",
        "probes/walk.py",
        "forms.setdefault(node.group.form, [])",
        "forms.setdefault(None, [])",
        "probes/test_walk.py",
    ),
    Mutant(
        "losses: the first text token is predicted from padding",
        "probes/batch.py",
        "self.valid[:, :-1] & self.valid[:, 1:]",
        "self.valid[:, 1:]",
        "probes/test_lab.py",
    ),
    Mutant(
        "causal: changes are added",
        "probes/causal.py",
        "updates[step.call.block] - moved[place]",
        "updates[step.call.block] + moved[place]",
        _LOOPS,
    ),
    Mutant(
        "permutation: not over the loss",
        "probes/permutation.py",
        " / loss.average(weights)",
        "",
        _LOOPS,
    ),
    Mutant(
        "lens: divergence the other way round",
        "probes/lens.py",
        "(chances * (final - here))",
        "(here.exp() * (here - final))",
        _LOOPS,
    ),
    Mutant(
        "usefulness: measured where it was fitted",
        "probes/usefulness.py",
        "chosen[::2], chosen[1::2]",
        "chosen[::2], chosen[::2]",
        _LOOPS,
    ),
    Mutant(
        "rank: the mean stays in",
        "probes/rank.py",
        "whole - tokens * np.outer(mean, mean)",
        "whole",
        _LOOPS,
    ),
    Mutant(
        "jacobian: distance from zero",
        "probes/jacobian.py",
        "(jacobian - eye)",
        "(jacobian)",
        _LOOPS,
    ),
    Mutant(
        "paths: coefficients of a route are not held",
        "probes/paths.py",
        "route = fixed(route)",
        "route = route",
        _PATHS,
    ),
    Mutant(
        "paths: coefficients of sums are not held",
        "nn/kernels.py",
        "return coefficient.detach() if holding() else coefficient",
        "return coefficient",
        _PATHS,
    ),
    Mutant(
        "prune: mixes of other sites",
        "designs/attnres.py",
        "sites = [2 * block + side for block in kept for side in (0, 1)]",
        "sites = [2 * block + side for block in range(len(kept)) for side in (0, 1)]",
        "probes/test_prune.py",
    ),
    Mutant(
        "OLMo-core: gate and up in each other's place",
        "hub/olmo_names.py",
        '("w1", "w3")',
        '("w3", "w1")',
        "hub/test_olmo_core.py",
    ),
]
