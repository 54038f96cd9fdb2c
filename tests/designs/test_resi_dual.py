"""ResiDual: ``x = p``, ``p ← N(p + y)``, ``q ← q + y``, read out as ``p + N(q)``."""

import torch
from torch import Tensor

from depthbench.nn.block import Trace
from depthbench.nn.model import Model
from tests.oracles import GQA, Oracle, assert_equation, config_of, random_model, rms, tokens_of


def equation(o: Oracle, h: Tensor) -> Tensor:
    post, pre = h, h
    for site in range(o.shape.sites):
        y = o.branch(site, post)
        post, pre = o.norm(site, post + y), pre + y
    return post + rms(pre, o["design.norm.gain"])


def test_logits_and_gradients() -> None:
    assert_equation(config_of("resi_dual"), equation)


def test_depth_states_hold_both_streams_side_by_side() -> None:
    """The second is the embedding plus all outputs, which nothing norms."""
    model = random_model(config_of("resi_dual"))
    tokens, trace, outputs = tokens_of(GQA), Trace(), []

    def tap(site: int, x: Tensor, y: Tensor) -> Tensor:
        outputs.append(y)
        return y

    model(tokens, tap=tap, trace=trace)
    embedding = model.embed(tokens)
    assert torch.equal(trace.depth_states[0], torch.cat([embedding, embedding], -1))
    for blocks, state in enumerate(trace.depth_states):
        assert state.shape == (2, 6, 64)
        total = embedding + sum(outputs[: 2 * blocks])
        torch.testing.assert_close(state[..., 32:], total, rtol=1e-12, atol=1e-12)


def test_facts_hold() -> None:
    for fact in Model.on_meta(config_of("resi_dual")).design.facts():
        assert abs(fact.measured - fact.expected) <= fact.tolerance, fact
