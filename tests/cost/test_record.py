"""Kernels, bytes and what is alive, by hand."""

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from depthbench.cost.record import Kernel, Recorder, Size

SIZE = 4
"""Bytes of a number."""


def recorded(run: object, *tensors: torch.Tensor) -> list[Kernel]:
    assert callable(run)
    recorder = Recorder(tensors)
    with recorder:
        run()
    return recorder.kernels


def test_a_product_reads_both_sides_and_knows_its_size() -> None:
    with FakeTensorMode():
        x, weight = torch.empty(3, 5, 8), torch.empty(6, 8)
        [kernel] = recorded(lambda: functional.linear(x, weight), weight)
    assert kernel.kind == "product"
    assert kernel.flops == 2 * 15 * 8 * 6
    assert kernel.read == SIZE * (15 * 8 + 6 * 8)
    assert kernel.written == SIZE * 15 * 6
    assert kernel.weights == SIZE * 6 * 8
    assert kernel.size == Size(1, 15, 8, 6)
    # the transposition of the weight, one reshape and the product; the last reshape comes after
    assert kernel.calls == 3


def test_views_cost_a_call_but_no_kernel() -> None:
    with FakeTensorMode():
        x = torch.empty(4, 6)
        [kernel] = recorded(lambda: x.view(2, 12).transpose(0, 1)[3:].add(1.0))
    assert (kernel.name, kernel.calls) == ("add", 4)
    assert (kernel.read, kernel.written) == (SIZE * 18, SIZE * 18)
    assert kernel.flops == 18


def test_what_is_only_overwritten_is_not_read() -> None:
    with FakeTensorMode():
        x, y = torch.empty(10), torch.empty(10)
        found = recorded(lambda: (y.copy_(x), y.add_(x), torch.mul(x, x, out=y), y.zero_()))
    assert [one.read for one in found] == [SIZE * 10, SIZE * 20, SIZE * 10, 0]
    assert [one.written for one in found] == [SIZE * 10] * 4


def test_a_look_up_reads_its_rows_alone_and_what_repeats_is_read_once() -> None:
    with FakeTensorMode():
        table, tokens = torch.empty(100, 8), torch.zeros(3, dtype=torch.long)
        [kernel] = recorded(lambda: functional.embedding(tokens, table), table)
        x = torch.empty(1, 8).expand(50, 8)
        [more] = recorded(lambda: x + 1.0)
    assert kernel.read == SIZE * 3 * 8 + 8 * 3
    assert kernel.weights == SIZE * 3 * 8
    assert (more.read, more.written) == (SIZE * 8, SIZE * 400)


def test_attention_is_one_kernel_and_half_of_it_where_it_is_causal() -> None:
    with FakeTensorMode():
        q, k = torch.empty(2, 4, 16, 8), torch.empty(2, 2, 16, 8)
        attend = functional.scaled_dot_product_attention
        [half] = recorded(lambda: attend(q, k, k, is_causal=True, enable_gqa=True))
        [whole] = recorded(lambda: attend(q, k, k, enable_gqa=True))
    assert half.kind == "attention"
    assert whole.flops == 2 * half.flops == 2 * 2 * 2 * 4 * 16 * 16 * 8
    # keys and values are those of two heads, however many ask; one tensor is both here
    assert whole.read == SIZE * (q.numel() + k.numel())


def test_what_is_alive() -> None:
    with FakeTensorMode():
        held = torch.empty(100)
        recorder = Recorder([])
        assert recorder.start(held) == SIZE * 100
        with recorder:
            first = held + 1.0
            second = first + 1.0
            assert recorder.live.now == SIZE * 300
            del first
            third = second.view(10, 10)
            del second
            assert recorder.live.now == SIZE * 200
            del third
        assert recorder.live.now == SIZE * 100
        assert recorder.live.peak == SIZE * 300


def test_the_innermost_part_counts_and_an_even_share_stands_for_an_unknown_count() -> None:
    with FakeTensorMode():
        inner, x = nn.Linear(4, 4, bias=False), torch.empty(2, 4)
        outer = nn.Sequential(inner, nn.ReLU())
        recorder = Recorder(list(outer.parameters()))
        recorder.name_part(outer, "outer")
        recorder.name_part(inner, "inner")
        with recorder:
            outer(x).mul(2.0)
            counts = torch.bincount(torch.zeros(7, dtype=torch.long), minlength=3).tolist()
    assert [one.part for one in recorder.kernels] == ["inner", "outer", "", ""]
    assert counts == [3, 2, 2]
