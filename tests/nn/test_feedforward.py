"""SwiGLU by hand."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from depthbench.nn.fast_swiglu import gate_fast, gate_plain


@pytest.mark.parametrize("gate", [gate_fast, gate_plain])
def test_gate_comes_first(gate: Callable[[Tensor], Tensor]) -> None:
    gate_up = torch.tensor([[1.0, -2.0, 3.0, 5.0]], dtype=torch.float64)
    expected = [3 / (1 + math.exp(-1)), -2 / (1 + math.exp(2)) * 5]
    torch.testing.assert_close(gate(gate_up), torch.tensor([expected], dtype=torch.float64))
