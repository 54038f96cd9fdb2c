"""Streams of a model that is not ours: DeepSeek-V4's four, of random weights."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from depthbench.probes.huggingface import HuggingFaceSubject
from depthbench.probes.lab import Alone, Lab
from depthbench.probes.subject import Call
from depthbench.probes.walk import Limits
from depthbench.redundancy import Collapse
from depthbench.streams.ablation import Ablation, row_losses
from depthbench.streams.information import Information
from depthbench.streams.merge.plan import Alike
from depthbench.streams.sample import SampleConfig
from depthbench.streams.shared import Shared
from depthbench.streams.sites import Removal, parts_of
from depthbench.streams.verdict import Verdict
from tests.probes.tiny import tiny
from tests.streams.planted import lab_of, noisy, random_rows


@pytest.fixture(scope="module")
def lab() -> Lab:
    subject = HuggingFaceSubject(tiny("deepseek_v4"), "v4")
    vocab = subject.facts.vocab
    text = lab_of(noisy("hc"), random_rows(12, 48, vocab=vocab)).text
    return Lab(subject, text, Alone(subject, text, Limits()))


def test_its_streams_are_diagnosed_block_by_block(lab: Lab) -> None:
    assert lab.subject.facts.streams == 4
    assert lab.subject.stream_names == ("0", "1", "2", "3")
    assert parts_of(lab.subject) == ("block",)
    sample = SampleConfig(tokens=512, depths=2)
    information = Information(sample=sample).run(lab)
    # random tokens of random domains: nothing can be read of what comes
    assert all(abs(information.number(f"token_{n}").value or 9) < 0.5 for n in range(4))
    shared = Shared(sample=sample, components=4, compared=1).run(lab)
    rank, centred = shared.curve("rank"), shared.curve("rank_centred")
    assert rank.values[0] == pytest.approx(1.0)
    assert centred.values[0] == pytest.approx(0.0, abs=1e-6)
    assert 1.0 < (rank.values[-1] or 0) < 4.0
    assert 1.0 < (centred.values[-1] or 0) <= 3.0
    assert Ablation(ranges=2).run(lab).words[-1].endswith("in front of every block.")
    verdict = Verdict().run(lab)
    assert "no ablation of every stream" in verdict.words[0]
    assert Collapse().refusal(lab.subject) is None


def test_a_removal_equals_a_loop_by_hand(lab: Lab) -> None:
    subject = lab.subject
    removal = Removal(streams=(2,), start=1, stop=lab.layers)
    found = row_losses(lab, [removal], [0]).nats[1]
    session = subject.session(lab.text.batches[0])
    tokens = lab.text.batches[0].tokens

    with torch.no_grad():
        state = session.open()
        for block in range(lab.layers):
            if block >= 1:
                state = state.clone()
                state[:, :, 2] = 0
            state = session.run(Call(block, block), state, 1)
        state = state.clone()
        state[:, :, 2] = 0
        logits = session.logits(session.readout(state))[:, :-1]
    each = functional.cross_entropy(logits.mT, tokens[:, 1:], reduction="none").sum(1)
    np.testing.assert_allclose(found, each.numpy(), rtol=1e-5)


def test_all_streams_are_equal_at_the_start_alone(lab: Lab) -> None:
    alike = Alike.measured(lab)
    assert alike.left[0].max() < 1e-6
    assert alike.copies() == []
