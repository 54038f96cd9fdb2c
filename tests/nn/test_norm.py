"""RMSNorm and LayerNorm by hand."""

import math

import torch

from depthbench.nn.norm import LayerNorm, RMSNorm

X = [3.0, -1.0, 2.0, 0.0]
GAIN = [1.0, 2.0, -1.0, 0.5]


def test_rms_norm() -> None:
    norm = RMSNorm(4, eps=0.5).double()
    with torch.no_grad():
        norm.gain.copy_(torch.tensor(GAIN))
    out = norm(torch.tensor(X, dtype=torch.float64))
    rms = math.sqrt((9 + 1 + 4) / 4 + 0.5)
    expected = [g * x / rms for g, x in zip(GAIN, X, strict=True)]
    torch.testing.assert_close(out, torch.tensor(expected, dtype=torch.float64))


def test_layer_norm_removes_the_mean() -> None:
    norm = LayerNorm(4, eps=0.5).double()
    with torch.no_grad():
        norm.gain.copy_(torch.tensor(GAIN))
    out = norm(torch.tensor(X, dtype=torch.float64))
    deviation = math.sqrt((4 + 4 + 1 + 1) / 4 + 0.5)
    expected = [g * (x - 1) / deviation for g, x in zip(GAIN, X, strict=True)]
    torch.testing.assert_close(out, torch.tensor(expected, dtype=torch.float64))


def test_bfloat16_input_is_normed_in_float32() -> None:
    norm = RMSNorm(4, eps=1e-6)
    with torch.no_grad():
        norm.gain.fill_(1.0)
    x = torch.tensor([1.0, 1.0, 1.0, 1.0], dtype=torch.bfloat16) * 3
    with torch.autocast("cpu", torch.bfloat16):
        out = norm(x)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, torch.full((4,), 3 / math.sqrt(9 + 1e-6)), rtol=1e-7, atol=0)
