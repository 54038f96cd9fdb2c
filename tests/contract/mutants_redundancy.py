"""Alterations of the probes of redundancy, each seen by planted truths and plain loops."""

from tests.contract.mutant import Mutant

_COLLAPSE = "redundancy/test_collapse.py"
_EXPERTS = "redundancy/test_experts.py"
_OVERLAP = "redundancy/test_overlap.py"

REDUNDANCY = [
    Mutant(
        "collapse: the last run counts",
        "redundancy/collapse.py",
        "elif place + 1 - start > best[1]:",
        "elif place + 1 - start >= 1:",
        _COLLAPSE,
    ),
    Mutant(
        "collapse: ties take the last rank",
        "redundancy/collapse.py",
        "np.cumsum(counts) - (counts - 1) / 2",
        "np.cumsum(counts)",
        _COLLAPSE,
    ),
    Mutant(
        "experts: documents count alike",
        "redundancy/experts.py",
        "self.tokens if weights is None else self.tokens * weights",
        "np.ones_like(self.tokens) if weights is None else weights",
        _EXPERTS,
    ),
    Mutant(
        "experts: padding on the right is counted",
        "probes/own.py",
        "tokens[valid][None]",
        "tokens[int(valid.int().argmax()) :][None]",
        _EXPERTS,
    ),
    Mutant(
        "experts: padding of others is counted",
        "probes/hf_routers.py",
        "counts * batch.valid.unsqueeze(-1)",
        "counts",
        _EXPERTS,
    ),
    Mutant(
        "overlap: the average looks ahead",
        "redundancy/overlap_tasks.py",
        "before = window - 1 if",
        "before = 0 if",
        _OVERLAP,
    ),
    Mutant(
        "overlap: the other part is silent",
        "nn/block.py",
        "if name not in silent]",
        "if name in silent or not silent]",
        _OVERLAP,
    ),
    Mutant(
        "overlap: products are not centred",
        "redundancy/overlap_tasks.py",
        '[f"own.{block}"] - np.outer(s, s) / tokens',
        '[f"own.{block}"]',
        _OVERLAP,
    ),
]
