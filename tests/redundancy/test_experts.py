"""Routers whose choices are known: dead experts, even loads, experts of one domain."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from depthbench.errors import DepthbenchError
from depthbench.files import append_line
from depthbench.nn.block import Block
from depthbench.nn.model import Model, ModelConfig
from depthbench.nn.moe import MoEBackbone, RoutedExperts
from depthbench.probes.huggingface import HuggingFaceSubject
from depthbench.probes.lab import Alone, Lab
from depthbench.probes.own import OwnSubject
from depthbench.probes.result import ProbeResult
from depthbench.probes.text import Text
from depthbench.probes.walk import Limits
from depthbench.redundancy.experts import Experts
from depthbench.train.load import load_trial
from depthbench.train.loop import Trial
from tests.oracles import random_model
from tests.probes.small import VOCAB, in_batches, lab_of, random_own, rows
from tests.probes.test_planted import values
from tests.probes.tiny import random_of, tiny
from tests.small import make_dataset, trial_config

LAYERS, EXPERTS = 3, 8
SHAPE = {"layers": LAYERS, "width": 32, "heads": 4, "kv_heads": 2, "ffn": 24, "vocab": VOCAB}


def moe(top_k: int) -> Model:
    backbone = MoEBackbone(experts=EXPERTS, top_k=top_k, renormalise=top_k > 1)
    config = ModelConfig.parse({"shape": SHAPE, "design": "prenorm", "backbone": backbone})
    return random_model(config).eval()


def block_of(model: Model, number: int) -> Block:
    block = model.blocks[number]
    assert isinstance(block, Block)
    return block


def router_of(model: Model, block: int) -> torch.nn.Parameter:
    branch = block_of(model, block).feedforward
    assert isinstance(branch, RoutedExperts)
    return branch.router.weight


@torch.no_grad()
def with_dead(model: Model, block: int, dead: tuple[int, int]) -> Model:
    """Three pairs of opposite experts leave three logits above the dead ones' 0, for any input."""
    weight = router_of(model, block)
    alive = [one for one in range(EXPERTS) if one not in dead]
    for one, other in zip(alive[::2], alive[1::2], strict=True):
        weight[other] = -weight[one]
    weight[list(dead)] = 0
    return model


@torch.no_grad()
def by_token(layers: int = LAYERS) -> Model:
    """A router that sends token ``i`` to expert ``i mod 8``, alone: nothing else is there."""
    model = moe(top_k=1)
    model.embed.weight.zero_()
    for token in range(VOCAB):
        model.embed.weight[token, token % EXPERTS] = 1
    for number in range(layers):
        block = block_of(model, number)
        for branch in (block.attention, block.feedforward):
            list(branch.parameters())[-1].zero_()
        for connection in (block.attention_connection, block.feedforward_connection):
            for gain in connection.parameters():
                gain.fill_(1)
        router_of(model, number).zero_()
        router_of(model, number)[:, :EXPERTS] = torch.eye(EXPERTS, dtype=torch.float64)
    return model


def found(model: Model, text: Text, probe: Experts | None = None) -> ProbeResult:
    return (probe or Experts()).run(lab_of(model, text))


def of_domains(texts: dict[str, list[list[int]]], size: int = 2) -> Text:
    text = in_batches([one for each in texts.values() for one in each], size)
    names = tuple(name for name, each in texts.items() for _ in each)
    return Text(text.batches, text.facts, names)


def test_two_dead_experts_are_named() -> None:
    model = with_dead(moe(top_k=2), 1, (2, 5))
    result = found(model, in_batches(rows((40,) * 8), 2))
    assert values(result, "dead")[1] == 2
    loads = np.array(result.matrix("load").values, dtype=np.float64)
    assert np.nonzero(loads[1] == 0)[0].tolist() == [2, 5]
    assert loads.sum(1) == pytest.approx(EXPERTS)
    named = [one for one in result.words if "dead" in one and one.startswith("Block 1")]
    assert named == ["Block 1: experts 2 and 5 of 8 are dead: 0 and 0 of an even share, under 0.1."]
    assert values(result, "effective")[1] <= 6


def test_loads_are_those_of_the_tokens_alone() -> None:
    """Padding on either side is not counted, and rows of other lengths count by their tokens."""
    lengths = (16, 9, 12)
    texts = [[1 + n % 5 for n in range(length)] for length in lengths]
    expected = np.bincount(np.concatenate(texts) % EXPERTS, minlength=EXPERTS)
    for left in (False, True):
        result = found(by_token(), in_batches(texts, 3, left=left))
        load = np.array(result.matrix("load").values, dtype=np.float64)
        assert load == pytest.approx(
            np.tile(EXPERTS * expected / expected.sum(), (LAYERS, 1)), abs=1e-6
        )


def test_even_and_narrow_loads() -> None:
    """Closed forms: ln 8 for even loads; for 3/4, 1/8, 1/8 their entropy."""
    even = found(by_token(), in_batches([list(range(8, 24))] * 6, 2))
    assert values(even, "entropy") == pytest.approx(1, abs=1e-6)
    assert values(even, "effective") == pytest.approx(EXPERTS, abs=1e-5)
    assert values(even, "busiest") == pytest.approx(2 / EXPERTS, abs=1e-6)
    assert even.words[0].startswith("No expert is dead: ")
    assert even.words[1].startswith("No router has collapsed: ")
    assert "8.00 of 8 experts" in even.words[1]
    assert even.curve("effective").low == pytest.approx((EXPERTS,) * LAYERS, abs=1e-5)
    narrow = found(by_token(), in_batches([[8] * 12 + [9, 9, 10, 10]] * 4, 2))
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.125))
    assert values(narrow, "entropy") == pytest.approx(entropy / math.log(EXPERTS), abs=1e-6)
    assert values(narrow, "effective") == pytest.approx(math.exp(entropy), abs=1e-5)
    assert values(narrow, "busiest") == pytest.approx(0.875, abs=1e-6)
    assert values(narrow, "dead") == pytest.approx(5)
    assert narrow.curve("effective").low == (None,) * LAYERS
    said = "The router of block 0 has collapsed: it uses 2.09 of 8 experts"
    assert any(one.startswith(said) for one in narrow.words)
    assert any("get up to 88% of the choices" in one for one in narrow.words)


def test_an_interval_holds_what_other_documents_would_give() -> None:
    """Half of the documents use one expert, half another: the effective number is up to 2."""
    text = in_batches([[8] * 8] * 10 + [[9] * 8] * 10, 2)
    curve = found(by_token(), text).curve("effective")
    low, high = curve.low[0], curve.high[0]
    assert low is not None
    assert high is not None
    assert curve.values[0] == pytest.approx(2, abs=1e-5)
    # of 20 fair draws, one side has 4 or fewer in 1.2 %, and 5 or fewer in 4.1 %, of all samples
    assert low == pytest.approx(
        math.exp(-(0.25 * math.log(0.25) + 0.75 * math.log(0.75))), abs=1e-5
    )
    assert high == pytest.approx(2, abs=1e-5)


def test_experts_of_domains() -> None:
    """Domains with experts of their own: information is their entropy, and chance gives less."""
    texts = {"code": [[8, 9, 10, 11] * 4] * 12, "prose": [[12, 13, 14, 15] * 4] * 12}
    result = found(by_token(), of_domains(texts))
    assert values(result, "information") == pytest.approx(math.log(2), abs=1e-6)
    assert (values(result, "information_shuffled") < 0.1).all()
    assert result.number("domains").value == pytest.approx(math.log(2))
    code = np.array(result.matrix("load.code").values, dtype=np.float64)
    assert code[0] == pytest.approx([2] * 4 + [0] * 4, abs=1e-6)
    assert "Experts follow the domain: at most 0.693 nats of 0.693" in " ".join(result.words)
    assert "4 experts that others use are dead for code" not in " ".join(result.words)
    assert "12 experts that others use are dead for code (blocks 0 to 2)." in result.words
    both = {"code": [list(range(8, 16))] * 6, "prose": [list(range(16, 24))] * 6}
    alike = found(by_token(), of_domains(both))
    assert values(alike, "information") == pytest.approx(0, abs=1e-9)
    assert "Experts hardly know the domain" in " ".join(alike.words)


def test_over_training(tmp_path: Path) -> None:
    """From records written by hand; a model without a trial says that nothing is known."""
    even, fallen = [[0.25] * 4] * 2, [[0.5, 0.5, 0, 0], [0.25] * 4]
    for step, shares in ((20, even), (30, None), (40, fallen), (60, [[0.5, 0.45, 0.05, 0]] * 2)):
        health = {} if shares is None else {"health": {"expert_share": shares}}
        append_line(tmp_path / "metrics.jsonl", {"step": step} | health)
    subject = OwnSubject(moe(top_k=2), "test", trial=tmp_path)
    text = in_batches(rows((12,) * 2), 2)
    result = Experts().run(Lab(subject, text, Alone(subject, text, Limits())))
    assert result.curve("training_dead").places == (20, 40, 60)
    assert result.curve("training_dead").values == (0, 2, 2)
    assert result.curve("training_effective").values[:2] == pytest.approx((4, 3))
    assert result.curve("training_busiest").values == pytest.approx((0.25, 0.375, 0.5))
    assert (
        "Over training experts were dead as early as step 40: at most 2 of all routers (step 40), "
        "2 at the end (step 60)."
    ) in result.words
    without = found(moe(top_k=2), text)
    assert not [one for one in without.findings if one.name.startswith("training")]
    assert without.words[-1].startswith("Loads over training are not known")


def test_a_trained_trial(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path)
    config = trial_config(dataset, backbone={"name": "moe", "experts": 4})
    Trial(config, dataset, tmp_path / "trial").run(lambda *_: None)
    model, _ = load_trial(tmp_path / "trial")
    subject = OwnSubject(model, "test", trial=tmp_path / "trial")
    text = in_batches(rows((16,) * 4), 2)
    result = Experts().run(Lab(subject, text, Alone(subject, text, Limits())))
    assert result.curve("training_effective").places == (4, 8)
    assert all(2 <= (one or 0) <= 4 for one in result.curve("training_effective").values)


def test_mixtral() -> None:
    """One choice a token: of two opposite experts one is above a third one's 0."""
    model = tiny("mixtral", num_experts_per_tok=1)
    router = model.model.layers[2].mlp.gate
    with torch.no_grad():
        router.weight[1] = -router.weight[0]
        router.weight[2] = 0
    subject = HuggingFaceSubject(model, "test")
    text = in_batches(rows((16, 11, 14)), 3)
    assert Experts().refusal(subject) is None
    result = Experts().run(Lab(subject, text, Alone(subject, text, Limits())))
    loads = np.array(result.matrix("load").values, dtype=np.float64)
    chosen: list[torch.Tensor] = []
    hook = router.register_forward_hook(lambda _, __, output: chosen.append(output[2]))
    model(input_ids=text.batches[0].tokens)
    hook.remove()
    of_text = chosen[0].view(3, 16)[text.batches[0].valid]
    # documents count by their tokens, and padding does not
    assert loads[2] == pytest.approx(4 * np.bincount(of_text.numpy(), minlength=4) / 41)
    assert loads[2, 2] == 0
    assert any(one.startswith("Block 2: expert 2 of 4 is dead: 0 of") for one in result.words)


@pytest.mark.parametrize("family", ["deepseek_v4"])
def test_other_families(family: str) -> None:
    subject = HuggingFaceSubject(tiny(family), "test")
    text = in_batches(rows((16,) * 2), 2)
    result = Experts().run(Lab(subject, text, Alone(subject, text, Limits())))
    loads = np.array(result.matrix("load").values, dtype=np.float64)
    assert loads.sum(1) == pytest.approx([4] * len(loads))


def test_what_is_refused() -> None:
    dense = OwnSubject(random_own(layers=2), "test")
    assert Experts().refusal(dense) == "the blocks of backbone 'dense' have no router"
    assert "no module that is called a router" in str(
        Experts().refusal(HuggingFaceSubject(tiny("llama"), "test"))
    )


def test_a_router_that_gives_no_choices() -> None:
    import transformers

    config = transformers.JetMoeConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        num_hidden_layers=2,
        num_key_value_heads=2,
        kv_channels=8,
        intermediate_size=24,
        num_local_experts=4,
        num_experts_per_tok=2,
    )
    subject = HuggingFaceSubject(random_of(config), "test")
    text = in_batches(rows((16,) * 2), 2)
    lab = Lab(subject, text, Alone(subject, text, Limits()))
    with pytest.raises(DepthbenchError, match="JetMoeTopKGating gives no choices"):
        Experts().run(lab)
