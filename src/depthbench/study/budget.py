"""What two trials must have in common before their losses may be compared, and what may differ."""

from bisect import bisect_left

from depthbench.config import Frozen
from depthbench.cost.flops import count_flops
from depthbench.errors import DepthbenchError
from depthbench.nn.count import count_parameters
from depthbench.train.config import TrialConfig

MUST_AGREE = {
    "tokens": "training tokens",
    "sequences": "sequences in a batch",
    "length": "tokens in a sequence",
    "validation_tokens": "validation tokens",
}


class Budget(Frozen):
    """What one side may use, and what it makes of it."""

    tokens: int
    sequences: int
    length: int
    parameters: int
    flops_per_token: float
    """Of training: forward and backward of one sequence over its tokens."""


def budget_of(config: TrialConfig) -> Budget:
    """Counted on the meta device."""
    train = config.train
    return Budget(
        tokens=train.tokens,
        sequences=train.sequences,
        length=train.length,
        parameters=count_parameters(config.model).total,
        flops_per_token=count_flops(config.model, train.length).training_step / train.length,
    )


def check_budgets(
    a: TrialConfig, b: TrialConfig, labels: tuple[str, str], tolerance: float
) -> tuple[Budget, Budget]:
    """The budgets of both sides.

    Raises `DepthbenchError` unless tokens, batch and validation are equal and parameter totals
    within ``tolerance`` of the smaller one.
    """
    one, other = labels
    for field, words in MUST_AGREE.items():
        ours, theirs = a.train.resolved()[field], b.train.resolved()[field]
        if ours != theirs:
            raise DepthbenchError(
                f"unequal budgets: {one} has {ours:,} {words} (train.{field}), {other} {theirs:,}. "
                f"Give both train.{field}={ours}"
            )
    if a.data_hash != b.data_hash:
        raise DepthbenchError(
            f"unequal data: {one} reads {a.data_hash}, {other} {b.data_hash}. "
            "Give both the same settings under data"
        )
    budgets = budget_of(a), budget_of(b)
    off = excess(*budgets)
    if off > tolerance:
        raise DepthbenchError(_unequal(budgets, labels, off, tolerance))
    return budgets


def excess(a: Budget, b: Budget) -> float:
    """By what share the larger parameter total exceeds the smaller."""
    low, high = sorted((a.parameters, b.parameters))
    return high / low - 1


def fitted(large: TrialConfig, small: TrialConfig) -> int | None:
    """The feed-forward width at which ``large`` comes nearest to ``small``'s parameter total.

    None where not even a feed-forward of width 1 is small enough.
    """
    shape = large.model.shape

    def total(ffn: int) -> int:
        resized = shape.model_copy(update={"ffn": ffn})
        return count_parameters(large.model.model_copy(update={"shape": resized})).total

    aim, widths = count_parameters(small.model).total, range(1, shape.ffn + 1)
    if total(1) > aim:
        return None
    above = bisect_left(widths, aim, key=total)
    near = widths[max(above - 1, 0) : above + 1]
    return min(reversed(near), key=lambda ffn: abs(total(ffn) - aim))


def _unequal(
    budgets: tuple[Budget, Budget], labels: tuple[str, str], off: float, tolerance: float
) -> str:
    a, b = budgets
    return (
        f"unequal budgets: {labels[0]} has {a.parameters:,} parameters, {labels[1]} "
        f"{b.parameters:,}: {100 * off:.3g} % more, {100 * tolerance:.3g} % are allowed. "
        "Change a shape (depthbench shapes --params finds sizes that meet a budget), "
        "or say --tolerance"
    )
