"""Operations that a module states of itself."""

from dataclasses import dataclass

BACKWARD = 2
"""A product's backward is two products of its size: by the input and by the weight."""


@dataclass(frozen=True)
class Work:
    """Multiplications and additions of one sequence's forward, causal."""

    products: int = 0
    """Matrix products, as `torch.utils.flop_counter` counts them in the plain version."""
    attention: int = 0
    """Scores and values of attention over time, the causal half: torch's counter says twice it."""
    sums: int = 0
    """Weighted sums of vectors with coefficients of their own, which no counter of products sees:
    two for each entry and term. Norms, gates and activations are left out, as is usual."""

    def __add__(self, other: "Work") -> "Work":
        return Work(
            self.products + other.products,
            self.attention + other.attention,
            self.sums + other.sums,
        )

    def times(self, count: int) -> "Work":
        """``count`` of these."""
        return Work(self.products * count, self.attention * count, self.sums * count)

    @property
    def total(self) -> int:
        """All of one forward."""
        return self.products + self.attention + self.sums
