"""SwiGLU feed-forward branch."""

from typing import final

from jaxtyping import Float
from torch import Tensor

from depthbench.nn.branch import Branch, Context, Depth
from depthbench.nn.cache import Memory
from depthbench.nn.fast_swiglu import gate_fast, gate_plain
from depthbench.nn.kernels import fast
from depthbench.nn.parameters import Projection, Start
from depthbench.shapes import Shape


@final
class SwiGLU(Branch):
    """``W_down (silu(W_gate x) ⊙ W_up x)`` (arXiv 2002.05202)."""

    def __init__(self, shape: Shape, std_gate_up: float, std_down: float) -> None:
        super().__init__()
        self.gate_up = Projection(shape.width, [(2 * shape.ffn, std_gate_up)])
        self.down = Projection(shape.ffn, [(shape.width, std_down)])

    def starts(self) -> dict[str, Start]:
        return {}

    def last(self) -> tuple[Projection, ...]:
        return (self.down,)

    def forward(
        self,
        x: Float[Tensor, "b t d"],
        context: Context,
        depth: Depth | None = None,
        memory: Memory | None = None,
    ) -> tuple[Float[Tensor, "b t d"], None]:
        gate_up = self.gate_up(x)
        gate = gate_fast if fast(x) else gate_plain
        return self.down(gate(gate_up)), None
