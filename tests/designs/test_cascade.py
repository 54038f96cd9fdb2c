"""Cascade: token, chunk, sentence and task streams, each fed with its own causal mean."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from depthbench.designs.cascade import Cascade, CascadeConnection
from depthbench.designs.pools import PoolMemory, Spans, StartMemory, spans_of
from depthbench.marks import Marks
from depthbench.nn.branch import Context
from depthbench.nn.cache import Cache, Room
from depthbench.nn.model import Model, ModelConfig
from tests.oracles import GQA, Oracle, assert_equation, config_of, random_model, tokens_of

MARKS = Marks(document=0, sentence_ends=(1, 2))


def spans_by_hand(
    tokens: Sequence[int], t: int, marks: Marks, chunk: int, window: int
) -> tuple[range, range, range]:
    """Positions of the chunk, the sentence and the document of token ``t``, by walking back."""
    document = t
    while document > 0 and tokens[document] != marks.document:
        document -= 1
    sentence = t
    if marks.sentence_ends:
        while sentence > document and tokens[sentence - 1] not in marks.sentence_ends:
            sentence -= 1
    else:
        sentence = max(document, t - window + 1)
    starts = (max(document, t - chunk + 1), sentence, document)
    first, second, third = (range(start, t + 1) for start in starts)
    return first, second, third


def pools_by_hand(
    y: Tensor, tokens: Sequence[int], marks: Marks, chunk: int, window: int
) -> list[Tensor]:
    """The four streams' parts of ``y`` of one sequence."""
    rows = []
    for t in range(len(y)):
        spans = spans_by_hand(tokens, t, marks, chunk, window)
        means = [torch.stack([y[i] for i in span]).mean(0) for span in spans]
        rows.append(torch.stack([y[t], *means]))
    return list(torch.stack(rows).unbind(1))


def equation_of(
    marks: Marks = MARKS, chunk: int = 8, window: int = 64
) -> Callable[[Oracle, Tensor], Tensor]:
    """The equation with these spans; tokens are told by their embeddings."""

    def equation(o: Oracle, h: Tensor) -> Tensor:
        tokens = [int((o["embed.weight"] == row).all(1).nonzero()[0]) for row in h]
        streams = pools_by_hand(h, tokens, marks, chunk, window)
        for site in range(o.shape.sites):
            read, write = o.own(site, "read_gates"), o.own(site, "write_gates")
            mixed = sum(read[g] * streams[g] for g in range(4))
            y = o.branch(site, o.norm(site, mixed))  # type: ignore[arg-type]  # sum() is typed with its 0
            parts = pools_by_hand(y, tokens, marks, chunk, window)
            streams = [streams[g] + write[g] * parts[g] for g in range(4)]
        gates = o["design.readout_gates"]
        return sum(gates[g] * streams[g] for g in range(4))  # type: ignore[return-value]  # sum()

    return equation


def marked(marks: Marks, **options: int) -> ModelConfig:
    """A model that is told of these tokens."""
    config = config_of({"name": "cascade", **options})
    return config.model_copy(update={"marks": marks})


@pytest.mark.parametrize(("chunk", "window"), [(8, 64), (3, 2), (1, 1), (2, 5)])
def test_logits_and_gradients_without_marks(chunk: int, window: int) -> None:
    config = config_of({"name": "cascade", "chunk": chunk, "sentence_window": window})
    assert_equation(config, equation_of(Marks(), chunk, window))


@pytest.mark.parametrize("documents", [True, False])
@pytest.mark.parametrize("sentences", [True, False])
def test_logits_and_gradients_with_marks(documents: bool, sentences: bool) -> None:
    """One document begins inside a sequence, others before it; sentences end at its edges too."""
    first, second = tokens_of(GQA).tolist()
    marks = Marks(
        document=first[2] if documents else None,
        sentence_ends=(first[1], first[3], second[0], second[4]) if sentences else (),
    )
    config = marked(marks, chunk=3, sentence_window=2)
    assert_equation(config, equation_of(marks, 3, 2))


LENGTH = 40
PADDING = torch.tensor([0, 3, 17])
TOKENS = tokens_of(GQA.model_copy(update={"vocab": 9}), batch=3, length=LENGTH)
"""Documents and sentences of four or five tokens, also in the padding."""
Y = torch.randn(3, LENGTH, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
PIECES = [(LENGTH,), (1,) * LENGTH, (3, 1, 5, 20, 11), (16, 1, 1, 22)]


def told(tokens: Tensor, marks: Marks, **more: Any) -> Context:
    """A context of these tokens."""
    empty = torch.empty(tokens.shape[1], 0)
    return Context(empty, empty, tokens=tokens, marks=marks, **more)


def pooled(
    y: Tensor, marks: Marks, padding: Tensor | None, sizes: Sequence[int] | None = None
) -> Tensor:
    """Pools of ``y``: all at once, or with a cache in pieces of these sizes."""
    if sizes is None:
        context = told(TOKENS, marks, padding=padding)
        return spans_of(context, LENGTH, y.device, 3, 6).pool(y, None)
    room = Room(3, LENGTH, y.device, y.dtype, marks)
    kept = (0, 2, 1 if marks.sentence_ends else 5, 1)
    memory = StartMemory(room, PoolMemory(room, 4, kept))
    empty = torch.empty(LENGTH, 0)
    cache = Cache(room, empty, empty, branches=[], connections=[], design=memory)
    parts, past = [], 0
    for size in sizes:
        piece = slice(past, past + size)
        context = told(TOKENS[:, piece], marks, padding=padding, past=past, cache=cache)
        spans = spans_of(context, size, y.device, 3, 6)
        parts.append(spans.pool(y[:, piece], memory.pools))
        past += size
    return torch.cat(parts, 1)


SOME_MARKS = [MARKS, Marks(document=0), Marks(sentence_ends=(1, 2)), Marks()]


@pytest.mark.parametrize("padding", [None, PADDING], ids=["", "padded"])
@pytest.mark.parametrize("marks", SOME_MARKS, ids=["both", "documents", "sentences", "neither"])
def test_pools_are_means_over_spans_found_by_walking_back(
    marks: Marks, padding: Tensor | None
) -> None:
    """All at once, and in pieces with a cache."""
    edges = [0, 0, 0] if padding is None else padding.tolist()
    results = [pooled(Y, marks, padding, sizes) for sizes in (None, *PIECES)]
    for row, edge in enumerate(edges):
        expected = pools_by_hand(Y[row, edge:], TOKENS[row, edge:].tolist(), marks, 3, 6)
        for result in results:
            torch.testing.assert_close(
                result[row, edge:], torch.stack(expected, 1), rtol=1e-10, atol=1e-12
            )


@pytest.mark.parametrize("sizes", [None, (3, 1, 5, 20, 11)], ids=["forward", "steps"])
def test_no_pool_looks_ahead_behind_the_document_or_into_padding(
    sizes: Sequence[int] | None,
) -> None:
    """A huge output moves the pools of the rest of its document alone, and none before it."""
    before = pooled(Y, MARKS, PADDING, sizes)
    for row, changed in ((0, 7), (0, 20), (1, 2), (1, 25), (2, 16), (2, 30)):
        other = Y.clone()
        other[row, changed] += 1e3
        difference = (pooled(other, MARKS, PADDING, sizes) - before).abs().amax((2, 3))
        edge, text = PADDING[row].item(), TOKENS[row].tolist()
        end = next((t for t in range(changed + 1, LENGTH) if text[t] == 0), LENGTH)
        assert not difference[row, :changed].any()
        if changed < edge:
            assert not difference[row].any()
        else:
            assert (difference[row, changed:end] > 1).all()
            assert (difference[row, end:] < 1e-9).all()
        difference[row] = 0
        assert not difference.any()


def test_nothing_in_the_padding_is_read() -> None:
    broken = Y.clone()
    broken[1, :3] = broken[2, :17] = torch.nan
    assert torch.equal(pooled(broken, MARKS, PADDING)[1, 3:], pooled(Y, MARKS, PADDING)[1, 3:])


@pytest.mark.parametrize("sizes", [(1,) * 24, (3, 1, 5, 15), (12, 12)], ids=str)
def test_steps_with_marks_and_padding_give_the_forwards_logits(sizes: Sequence[int]) -> None:
    model = random_model(marked(MARKS, chunk=3, sentence_window=4))
    tokens = TOKENS[:, :24]
    cache = model.cache(3, 24, padding=PADDING)
    with torch.no_grad():
        steps = torch.cat([model.step(part, cache) for part in tokens.split(list(sizes), 1)], 1)
        for row, edge in enumerate(PADDING.tolist()):
            expected = model(tokens[row : row + 1, edge:])[0]
            scale = expected.abs().max()
            for logits in (steps, model(tokens, padding=PADDING)):
                assert (logits[row, edge:] - expected).abs().max() < 1e-10 * scale


@pytest.mark.parametrize(("marks", "vectors"), [(MARKS, 7 + 1 + 1), (Marks(), 7 + 63 + 1)])
def test_memory_does_not_grow_with_the_positions(marks: Marks, vectors: int) -> None:
    """The last window's vectors and running sums, at each site and of the embedding."""
    model = Model.build(marked(marks), 0, dtype=torch.bfloat16)
    for capacity in (8, 800):
        cache = model.cache(batch=3, capacity=capacity)
        memories = [*cache.connections, cache.design]
        sizes = [
            sum(t.numel() * t.element_size() for t in memory.tensors())
            for memory in memories
            if memory is not None
        ]
        assert sizes == [3 * 32 * 4 * vectors] * 6 + [3 * 32 * 4 * vectors + 2 * 3 * 8]


def test_marks_change_the_model_and_no_tokens_mean_no_marks() -> None:
    plain, told = (random_model(marked(marks)) for marks in (Marks(), MARKS))
    tokens = TOKENS[:, :20]
    assert (plain(tokens) - told(tokens)).abs().max() > 0.01
    empty = torch.empty(0, 0)
    unseen = spans_of(Context(empty, empty, marks=MARKS), 9, torch.device("cpu"), 3, 4)
    neither = spans_of(Context(empty, empty), 9, torch.device("cpu"), 3, 4)
    y = Y[:, :9]
    assert torch.equal(unseen.pool(y, None), neither.pool(y, None))


def test_start() -> None:
    model = Model.build(config_of("cascade"), seed=0)
    assert isinstance(model.design, Cascade)
    assert model.design.readout_gates.tolist() == [1, 0, 0, 0]
    for _, _, connection in model.sites():
        assert isinstance(connection, CascadeConnection)
        assert connection.read_gates.tolist() == [1, 0, 0, 0]
        assert connection.write_gates.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16], ids=str)
def test_sums_of_half_precision_are_in_float32(low: torch.dtype) -> None:
    y = Y.to(low)
    parts = pooled(y, Marks(), None)
    assert parts.dtype == torch.float32
    torch.testing.assert_close(
        parts.double(), pooled(y.double(), Marks(), None), rtol=1e-5, atol=1e-5
    )
    model = Model.build(config_of("cascade"), seed=0, dtype=low)
    logits = model(tokens_of(GQA))
    assert logits.dtype == low
    logits.float().sum().backward()


def test_spans_are_of_three_granularities() -> None:
    spans = spans_of(Context(torch.empty(0, 0), torch.empty(0, 0)), 5, torch.device("cpu"), 2, 4)
    assert isinstance(spans, Spans)
    assert spans.spans[0] is None, "the token itself"
    assert [span.start.tolist() for span in spans.spans if span is not None] == [
        [[0, 0, 1, 2, 3]],
        [[0, 0, 0, 0, 1]],
        [[0, 0, 0, 0, 0]],
    ]
