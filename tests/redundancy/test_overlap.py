"""Hybrids whose parts repeat each other by construction, and all numbers against plain loops."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from depthbench.marks import Marks
from depthbench.nn.block import Block
from depthbench.nn.branch import Branch, Context, Depth
from depthbench.nn.cache import Memory
from depthbench.nn.hybrid import AttentionBesideStates, HybridBackbone
from depthbench.nn.model import Model, ModelConfig
from depthbench.nn.parameters import Start
from depthbench.probes.batch import Batch
from depthbench.probes.huggingface import HuggingFaceSubject
from depthbench.probes.own import OwnSubject
from depthbench.probes.probe import LackingError
from depthbench.probes.program import plain, silent
from depthbench.probes.result import ProbeResult, without_sign_of_zero
from depthbench.probes.subject import Call
from depthbench.probes.text import Text
from depthbench.probes.walk import Walker
from depthbench.redundancy.overlap import PARTS, Changes, Overlap
from depthbench.redundancy.overlap_tasks import correlation, low_pass
from tests.oracles import random_model
from tests.probes.small import VOCAB, in_batches, lab_of, random_own, rows
from tests.probes.test_planted import values
from tests.probes.tiny import tiny

LAYERS = 3
DESIGNS: list[Any] = ["prenorm", "hc", "value_residual"]
TEXTS = rows((30, 21, 26, 30))


def hybrid(design: Any = "prenorm") -> Model:
    config = ModelConfig.parse(
        {
            "shape": {
                "layers": LAYERS,
                "width": 16,
                "heads": 4,
                "kv_heads": 2,
                "ffn": 24,
                "vocab": VOCAB,
            },
            "design": design,
            "backbone": HybridBackbone(state=3, chunk=4),
            "marks": Marks(document=0),
        }
    )
    return random_model(config).eval()


def block_of(model: Model, number: int) -> Block:
    block = model.blocks[number]
    assert isinstance(block, Block)
    return block


@torch.no_grad()
def without(model: Model, blocks: Sequence[int], parts: Sequence[str]) -> Model:
    """With the last matrix of these parts at 0, so that they give nothing."""
    model = copy.deepcopy(model)
    for number in blocks:
        branch = block_of(model, number).attention
        assert isinstance(branch, AttentionBesideStates)
        for part in parts:
            (branch.attention.o if part == "attention" else branch.states.out).weight.zero_()
    return model


@torch.no_grad()
def losses(model: Model, batch: Batch) -> Tensor:
    logits = model(batch.tokens, padding=batch.padding)[:, :-1]
    each = functional.cross_entropy(logits.mT, batch.tokens[:, 1:], reduction="none")
    return (each * batch.predicted).sum(1)


@pytest.mark.parametrize("design", DESIGNS)
def test_a_silent_part_is_one_whose_last_matrix_is_zero(design: Any) -> None:
    """States, next to the model's own, and programs of several of them side by side."""
    model = hybrid(design)
    text = in_batches(TEXTS, 2, left=True)
    session = OwnSubject(model, "test").session(text.batches[0])
    wanted = [([1], ["states"]), ([2], ["attention"]), ([0, 2], PARTS), (range(LAYERS), ["states"])]
    programs = [silent(LAYERS, list(blocks), *parts) for blocks, parts in wanted]
    for number, state in Walker(session).ends(programs):
        altered = without(model, *wanted[number])
        expected = OwnSubject(altered, "test").session(text.batches[0])
        found = session.logits(session.readout(state))[session.batch.valid]
        assert torch.allclose(found, expected.own_logits()[session.batch.valid], atol=1e-10)
    whole = dict(Walker(session).ends([plain(LAYERS)]))[0]
    state, parts = session.parts(Call(0, 0), session.open())
    assert [sorted(each) for each in parts] == [["attention", "states"], ["whole"]]
    assert torch.allclose(
        session.depth_state(state), session.depth_state(session.run(Call(0, 0), session.open(), 1))
    )
    assert torch.isfinite(session.logits(session.readout(whole))).all()


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("design", DESIGNS)
def test_ablations_against_a_loop(design: Any, left: bool) -> None:
    model = hybrid(design)
    text = in_batches(TEXTS, 2, left=left)
    domains = ("code", "prose", "prose", "code")
    result = Overlap(windows=(4,)).run(lab_of(model, Text(text.batches, text.facts, domains)))
    whole = torch.cat([losses(model, batch) for batch in text.batches]).numpy()
    code = np.array([name == "code" for name in domains])
    for name, parts in (("states", ["states"]), ("attention", ["attention"]), ("both", PARTS)):
        for blocks in [*([one] for one in range(LAYERS)), range(LAYERS)]:
            altered = without(model, blocks, parts)
            each = torch.cat([losses(altered, batch) for batch in text.batches]).numpy()
            if isinstance(blocks, range):
                found = result.number(f"without_{name}_all").value
                of_code = result.number(f"without_{name}_all.code").value
            else:
                found = values(result, f"without_{name}")[blocks[0]]
                of_code = values(result, f"without_{name}.code")[blocks[0]]
            assert found == pytest.approx(100 * (each.sum() / whole.sum() - 1), abs=1e-7)
            of_code_alone = 100 * (each[code].sum() / whole[code].sum() - 1)
            assert of_code == pytest.approx(of_code_alone, abs=1e-7)
    assert result.words[1].startswith("Block 1: ")
    change = values(result, "without_states")[1]
    assert f"without it the loss changes by {change:+.2f}% (" in result.words[1]
    total = result.number("without_both_all").value
    assert f"without both parts by {total:+.2f}% (" in result.words[-1]


@torch.no_grad()
def outputs(model: Model, block: int, batch: Batch) -> list[tuple[np.ndarray, np.ndarray]]:
    """State-space part and attention of every row: the whole, and what is left without one."""
    seen: list[list[Tensor]] = []
    for one in (model, without(model, [block], ["states"])):
        own: list[Tensor] = []

        def keep(_: int, __: Tensor, y: Tensor, own: list[Tensor] = own) -> Tensor:
            own.append(y)
            return y

        one(batch.tokens, tap=keep, padding=batch.padding)
        seen.append(own)
    whole, attention = seen[0][2 * block], seen[1][2 * block]
    return [
        ((y - a)[valid].numpy(), a[valid].numpy())
        for y, a, valid in zip(whole, attention, batch.valid, strict=True)
    ]


def averaged(x: np.ndarray, window: int) -> np.ndarray:
    return np.stack([x[max(0, t - window + 1) : t + 1].mean(0) for t in range(len(x))])


def cka(x: np.ndarray, y: np.ndarray) -> float:
    x, y = x - x.mean(0), y - y.mean(0)
    sizes = np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)
    return float(np.linalg.norm(x.T @ y) ** 2 / sizes)


@pytest.mark.parametrize("left", [False, True])
def test_correlations_against_a_loop(left: bool) -> None:
    model = hybrid("hc")
    text = in_batches(TEXTS, 2, left=left)
    result = Overlap(windows=(4, 16), beginning=2).run(lab_of(model, text))
    found, control, aligned, aligned_control = (
        np.array(result.matrix(name).values, dtype=np.float64)
        for name in ("correlation", "control", "cka", "cka_control")
    )
    for block in range(LAYERS):
        documents = [pair for batch in text.batches for pair in outputs(model, block, batch)]
        for number, window in enumerate((1, 4, 16)):
            pairs = [(s[2:], averaged(a, window)[2:]) for s, a in documents]
            turned = [(s, np.roll(a, len(a) // 2, axis=0)) for s, a in pairs]
            for got, got_cka, each in (
                (found, aligned, pairs),
                (control, aligned_control, turned),
            ):
                by_document = [
                    np.mean([np.corrcoef(s[:, c], a[:, c])[0, 1] for c in range(s.shape[1])])
                    for s, a in each
                ]
                expected = np.average(by_document, weights=[len(s) for s, _ in each])
                assert got[number, block] == pytest.approx(expected, abs=1e-8)
                together = [np.concatenate(one) for one in zip(*each, strict=True)]
                assert got_cka[number, block] == pytest.approx(cka(*together), abs=1e-8)
        sizes = [np.sqrt(sum((pair[n] ** 2).sum() for pair in documents)) for n in range(2)]
        assert values(result, "size")[block] == pytest.approx(sizes[0] / sizes[1])


class Repeating(Branch):
    """Attention is a map of each token alone; its state-space part averages it over 16 tokens."""

    parts = PARTS

    def __init__(self, width: int, scale: float) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.map = nn.Parameter(torch.randn(width, width, generator=generator).double())
        self.scale = scale

    def starts(self) -> dict[str, Start]:
        return {}

    def forward(
        self,
        x: Tensor,
        context: Context,
        depth: Depth | None = None,
        memory: Memory | None = None,
    ) -> tuple[Tensor, None]:
        given, _ = self.apart(x, context, depth, memory)
        return given["attention"] + given["states"], None

    def apart(
        self,
        x: Tensor,
        context: Context,
        depth: Depth | None = None,
        memory: Memory | None = None,
    ) -> tuple[dict[str, Tensor], None]:
        y = x @ self.map
        slow = torch.stack([self.scale * low_pass(one, 16, "causal") for one in y])
        return {"attention": y, "states": slow}, None


def planted(scale: float, **options: Any) -> ProbeResult:
    model = hybrid()
    for number in range(LAYERS):
        block = block_of(model, number)
        block.attention = Repeating(16, scale)
        # without a feed-forward, tokens stay as independent as they are drawn
        with torch.no_grad():
            list(block.feedforward.parameters())[-1].zero_()
    return Overlap(windows=(4, 16, 64), **options).run(
        lab_of(model, in_batches(rows((200,) * 6), 2))
    )


def test_a_part_that_repeats_low_frequencies() -> None:
    """For white noise, means over v and w >= v tokens have a correlation of sqrt(v / w)."""
    result = planted(0.01)
    found = np.array(result.matrix("correlation").values, dtype=np.float64)
    assert found[2] == pytest.approx(1, abs=1e-9)
    assert found[:3, 0] == pytest.approx([0.25, 0.5, 1], abs=0.06)
    # a window of a third of the document, which is shorter at its beginning
    assert 0.4 < found[3, 0] < 0.7
    control = np.array(result.matrix("control").values, dtype=np.float64)
    assert np.abs(control[:, 0]).max() < 0.2
    assert np.array(result.matrix("cka").values, dtype=np.float64)[2] == pytest.approx(1, abs=1e-9)
    # of 200 means the first 15 are over 1, 2, … tokens
    share = (185 / 16 + sum(1 / n for n in range(1, 16))) / 200
    assert values(result, "size") == pytest.approx(0.01 * np.sqrt(share), rel=0.15)
    low, high = result.curve("correlation_4").low[0], result.curve("correlation_4").high[0]
    assert low is not None
    assert high is not None
    assert low < found[1, 0] < high < low + 0.1
    assert result.words[0].startswith(
        "Block 0: the state-space part repeats low-frequency attention: correlation 1.00 over 16 "
        f"tokens, {found[0, 0]:.2f} unfiltered, {control[2, 0]:.2f} by chance; "
    )
    cost = values(result, "without_states")[0]
    assert abs(cost) < 0.2
    assert f"{cost:+.2f}%" == "-0.00%"
    assert "without it the loss changes by 0.00% (can go: under 0.2%)" in result.words[0]
    total = result.number("without_states_all").value
    told = without_sign_of_zero(f"{total:+.2f}%")
    assert f"without the state-space part by {told} (can go: under" in result.words[-1]


def test_a_part_that_takes_low_frequencies_back() -> None:
    result = planted(-1.0, dispensable=1e-6)
    assert np.array(result.matrix("correlation").values)[2] == pytest.approx(-1, abs=1e-9)
    assert "takes back low-frequency attention: correlation -1.00" in result.words[0]
    cost = values(result, "without_states")[0]
    assert f"without it the loss changes by {cost:+.2f}% (needed: 0.0% or more)" in result.words[0]


def test_a_part_that_gives_nothing() -> None:
    text = in_batches(TEXTS, 2)
    none = Overlap(windows=(4,)).run(lab_of(without(hybrid(), [1], ["states"]), text))
    assert none.curve("correlation_4").values[1] is None
    assert values(none, "without_states")[1] == 0
    assert values(none, "size")[1] == 0
    assert none.words[1].startswith(
        "Block 1: the state-space part gives nothing; without it the loss changes by 0.00%"
    )
    other = Overlap(windows=(4,)).run(lab_of(without(hybrid(), [1], ["attention"]), text))
    assert other.words[1].startswith("Block 1: the attention gives nothing")
    assert values(other, "without_attention")[1] == 0


def test_parts_that_have_nothing_in_common() -> None:
    result = Overlap(windows=(4,)).run(lab_of(hybrid(), in_batches(rows((60,) * 6), 2)))
    assert "does not repeat attention (threshold 0.7)" in result.words[0]


@pytest.mark.parametrize(("average", "before"), [("causal", 3), ("centred", 2)])
def test_low_pass(average: Any, before: int) -> None:
    x = torch.randn(9, 2, dtype=torch.float64)
    found = low_pass(x, 4, average)
    for t in range(9):
        start, stop = max(0, t - before), t - before + 4
        assert torch.allclose(found[t], x[start:stop].mean(0))
    assert torch.allclose(low_pass(x, 1, average), x)


def test_channels_that_do_not_vary_are_left_out() -> None:
    x = torch.randn(9, 2, dtype=torch.float64)
    y = torch.stack([-x[:, 0], torch.full((9,), 7.3, dtype=torch.float64)], dim=1)
    assert correlation(x, y) == pytest.approx(-1)
    assert np.isnan(correlation(x[:, 1:], y[:, 1:]))


def test_what_is_refused() -> None:
    said = "its blocks have no attention and state-space part side by side that run apart"
    assert Overlap().refusal(OwnSubject(random_own(layers=2), "test")) == said
    assert Overlap().refusal(HuggingFaceSubject(tiny("llama"), "test")) == said
    assert Overlap().refusal(OwnSubject(hybrid(), "test")) is None
    with pytest.raises(LackingError, match="documents of 4 tokens or more"):
        Overlap().run(lab_of(hybrid(), in_batches(rows((3, 3)), 2)))


def test_a_part_that_one_domain_needs() -> None:
    changes = Changes(
        np.array([0.001, 0.001]), {"code": np.zeros(2), "prose": np.array([0.004, 0])}
    )
    assert Overlap()._cost(changes, 0) == "+0.10% (needed for prose: +0.40%, 0.2% or more)"
    assert Overlap()._cost(changes, 1) == "+0.10% (can go: under 0.2%)"
