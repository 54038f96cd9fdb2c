"""RMSNorm and LayerNorm by hand."""

import math

import torch

from depthbench.nn.fast_norm import rms_norm_fast, rms_norm_plain
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


def test_gradients_of_the_fused_norm() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 5, generator=generator, dtype=torch.float64).requires_grad_()
    gain = torch.randn(5, generator=generator, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, g: rms_norm_fast(x, g, 0.1), (x, gain))
    assert torch.autograd.gradgradcheck(lambda x, g: rms_norm_fast(x, g, 0.1), (x, gain))
    torch.testing.assert_close(rms_norm_fast(x, gain, 0.1), rms_norm_plain(x, gain, 0.1))
