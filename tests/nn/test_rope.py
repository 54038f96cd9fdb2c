"""RoPE: against complex numbers, and the property that it is made for."""

import cmath

import pytest
import torch
from torch import Tensor

from depthbench.nn.rope import pair_turns, rotary_table, rotate, turn_pairs, turn_pairs_plain

CPU = torch.device("cpu")


def noise(*axes: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(axes, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("base", [10000.0, 500.0])
def test_pairs_turn_as_complex_numbers(base: float) -> None:
    x = noise(2, 7, 3, 8)
    turned = rotate(x, *rotary_table(7, 8, base, CPU, torch.float64))
    for t in range(7):
        for i in range(4):
            phase = cmath.exp(1j * t * base ** (-2 * i / 8))
            expected = torch.complex(x[:, t, :, i], x[:, t, :, i + 4]) * phase
            torch.testing.assert_close(turned[:, t, :, i], expected.real, rtol=1e-12, atol=1e-13)
            torch.testing.assert_close(
                turned[:, t, :, i + 4], expected.imag, rtol=1e-12, atol=1e-13
            )


def test_position_zero_does_not_turn() -> None:
    x = noise(1, 1, 1, 8)
    assert torch.equal(rotate(x, *rotary_table(1, 8, 10000.0, CPU, torch.float64)), x)


def test_products_depend_on_the_distance_only() -> None:
    query, key = noise(8), noise(8, seed=1)
    cos, sin = rotary_table(40, 8, 10000.0, CPU, torch.float64)

    def turned(x: Tensor, t: int) -> Tensor:
        return rotate(x.view(1, 1, 1, 8), cos[t : t + 1], sin[t : t + 1]).flatten()

    near = turned(query, 5) @ turned(key, 2)
    torch.testing.assert_close(turned(query, 38) @ turned(key, 35), near, rtol=1e-12, atol=0)
    assert (turned(query, 5) @ turned(key, 3) - near).abs() > 1e-3


def test_angles_keep_their_digits_at_far_positions() -> None:
    cos, _ = rotary_table(100_000, 8, 10000.0, CPU, torch.float32)
    expected = torch.tensor(
        [cmath.exp(1j * 99_999 * 10000.0 ** (-2 * i / 8)).real for i in range(4)]
    )
    torch.testing.assert_close(cos[-1], expected, rtol=0, atol=1e-7)


def test_pairs_side_by_side_turn_as_pairs_half_a_head_apart() -> None:
    """`turn_pairs` on reordered rows is `rotate`, reordered; features that follow stay."""
    x = noise(2, 7, 3, 8)
    rest = noise(2, 7, 6, seed=1)
    cos, sin = rotary_table(7, 8, 10000.0, CPU, torch.float64)
    turns = pair_turns(cos, sin, heads=3, tail=6)
    qkv = torch.cat([x.flatten(2), rest], dim=-1)[..., turns.order]
    expected = rotate(x, cos, sin).flatten(2)[..., turns.order[:24]]
    for turned, kept in (turn_pairs(qkv, turns), turn_pairs_plain(qkv, turns.turn)):
        torch.testing.assert_close(turned, expected, rtol=1e-14, atol=1e-14)
        assert torch.equal(kept, rest)
