"""Mutants of designs that average over time or keep something of earlier tokens."""

from tests.contract.mutant import Mutant

_MOMENTUM = "designs/momentum.py"
_POOLS = "designs/pools.py"
_CASCADE = "designs/test_cascade.py"

STATE = [
    Mutant(
        "momentum: weights exchanged",
        _MOMENTUM,
        "mu * history + (1 - mu) * y.to",
        "(1 - mu) * history + mu * y.to",
        "designs/test_momentum.py",
    ),
    Mutant(
        "momentum: gradient through the history",
        _MOMENTUM,
        "stopped(mean) if self.config.stop_gradient else mean",
        "mean",
        "designs/test_momentum.py",
    ),
    Mutant(
        "momentum: window one too long",
        _MOMENTUM,
        "states[: self.window - 1]",
        "states[: self.window]",
        "designs/test_momentum.py",
    ),
    Mutant(
        "momentum: history in half precision",
        _MOMENTUM,
        "Averaged(at_least_float32(embedding)",
        "Averaged(embedding",
        "designs/test_momentum.py",
    ),
    Mutant(
        "momentum over segments: averaged in the first segment too",
        _MOMENTUM,
        "torch.where(first, y, mu",
        "torch.where(first & ~first, y, mu",
        "designs/test_momentum.py",
    ),
    Mutant(
        "momentum over segments: first mean scaled",
        _MOMENTUM,
        "torch.where(segments.first == 0, means[:, 0], after)",
        "after",
        "designs/test_momentum.py",
    ),
    Mutant(
        "momentum over segments: padding counts as text",
        _MOMENTUM,
        "torch.arange(length, device=device) - edge",
        "torch.arange(length, device=device) - 0 * edge",
        "designs/test_momentum.py",
    ),
    Mutant(
        "momentum over segments: a begun segment forgotten",
        _MOMENTUM,
        "memory.begun.copy_(at_place(sums, segments.next)[:, 0])",
        "memory.begun.zero_()",
        "designs/test_momentum.py",
    ),
    Mutant(
        "cascade: chunk one too long",
        _POOLS,
        "positions - chunk + 1",
        "positions - chunk",
        _CASCADE,
    ),
    Mutant(
        "cascade: a sentence starts with the end of the last",
        _POOLS,
        "positions + 1, 0)",
        "positions, 0)",
        _CASCADE,
    ),
    Mutant(
        "cascade: documents not seen",
        _POOLS,
        "context.tokens == token, positions, 0",
        "context.tokens == token, 0, 0",
        _CASCADE,
    ),
    Mutant(
        "cascade: padding pooled",
        _POOLS,
        "if self.valid is not None:",
        "if self.valid is None:",
        _CASCADE,
    ),
    Mutant(
        "cascade: write gates unused",
        "designs/cascade.py",
        "route.write.unsqueeze(-1) * pooled",
        "pooled",
        _CASCADE,
    ),
    Mutant(
        "cascade: sum read out",
        "designs/cascade.py",
        "return gated(self.readout_gates, state.streams)",
        "return state.streams.sum(2)",
        _CASCADE,
    ),
    Mutant(
        "cascade: the sentence's start forgotten between steps",
        _POOLS,
        "memory.sentence.copy_(starts[:, -1:])",
        "memory.sentence.zero_()",
        _CASCADE,
    ),
    Mutant(
        "cascade: sums of earlier documents carried on",
        _POOLS,
        "memory.copy_(sums[:, -1:] if",
        "memory.copy_(running[:, -1:] if",
        _CASCADE,
    ),
    Mutant(
        "marks: a design that reads them is not told",
        "study/plan.py",
        "marks=told(self.study.train, design, self.marks)",
        "marks=NO_MARKS",
        "study/test_marks.py",
    ),
    Mutant(
        "marks: closing quotes hide a sentence's end",
        "data/sentences.py",
        "text[-1].isspace() or text[-1] in CLOSING",
        "text[-1].isspace()",
        "data/test_tokenizer.py",
    ),
]
