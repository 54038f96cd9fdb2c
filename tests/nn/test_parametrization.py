"""Parametrizations: the rules as numbers, the forward as an equation, and who is refused."""

from typing import Any

import pytest
import torch
from torch import Tensor

from depthbench.designs import REGISTRY, parse_design
from depthbench.errors import DepthbenchError
from depthbench.nn.model import Model, ModelConfig
from depthbench.nn.parameters import Start, declared
from depthbench.nn.parametrization import Parametrization
from depthbench.shapes import Shape
from tests.oracles import Oracle, assert_equation, random_model, tokens_of

SHAPE = Shape(layers=8, width=32, heads=4, kv_heads=2, ffn=48, vocab=40)
BASE = {"base_layers": 2, "base_width": 16, "base_head_dim": 8}
"""So SHAPE is 4 times as deep and twice as wide."""
TAKERS = [name for name, kind in REGISTRY.items() if kind.sums_branches]


def start(**facts: bool) -> Start:
    return Start(lambda tensor, generator: None, decay=True, **facts)


def config_of(kind: str, design: Any = "prenorm", shape: Shape = SHAPE, **own: Any) -> ModelConfig:
    backbone = own.pop("backbone", {})
    scaled = {"kind": kind} | ({} if kind == "standard" else BASE) | own
    facts = {"shape": shape, "design": design, "backbone": backbone}
    return ModelConfig.parse(facts | {"parametrization": scaled})


@pytest.mark.parametrize(
    ("kind", "scope", "expected"),
    [
        # branch, head, std; rates of matrix, gain, carried; outside: matrix, gain; eps in and out
        ("standard", None, [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
        ("depth_mup", "depth", [1 / 2, 1, 1, 1 / 2, 1 / 2, 1 / 4, 1, 1, 1 / 2, 1]),
        ("completep", "depth", [1 / 4, 1, 1, 1, 1, 1 / 4, 1, 1, 1 / 4, 1]),
        (
            "depth_mup",
            "depth_width",
            [1 / 2, 1 / 2, 2**-0.5, 1 / 4, 1 / 2, 1 / 4, 1 / 2, 1, 1 / 4, 1 / 2],
        ),
        (
            "completep",
            "depth_width",
            [1 / 4, 1 / 2, 2**-0.5, 1 / 2, 1, 1 / 4, 1 / 2, 1, 1 / 8, 1 / 2],
        ),
    ],
)
def test_rules_at_four_times_the_depth_and_twice_the_width(
    kind: str, scope: str | None, expected: list[float]
) -> None:
    own = {} if scope is None else BASE | {"scope": scope}
    scaling = Parametrization.parse({"kind": kind} | own).at(SHAPE)
    matrix, gain, carried = start(over_width=True), start(), start(carried=True)
    inside = [scaling.rate(one, in_block=True) for one in (matrix, gain, carried)]
    outside = [scaling.rate(one, in_block=False) for one in (matrix, gain)]
    eps = [scaling.eps(gain, in_block=inner) for inner in (True, False)]
    found = [scaling.branch, scaling.head, scaling.std, *inside, *outside, *eps]
    assert found == pytest.approx(expected, rel=1e-12)
    # rate times decay is what shrinks a weight in a step: it does not depend on the width
    by_width = scaling.rate(matrix, in_block=False) * scaling.decay(matrix)
    assert by_width == pytest.approx(1, rel=1e-12)
    assert scaling.decay(gain) == 1
    assert scaling.eps(carried, in_block=True) == pytest.approx(scaling.head, rel=1e-12)


def test_nothing_changes_at_the_base_shape() -> None:
    base = SHAPE.model_copy(update={"layers": 2, "width": 16, "heads": 2})
    plain = Model.build(config_of("standard", shape=base), seed=0)
    scaled = Model.build(config_of("completep", shape=base), seed=0)
    tokens = tokens_of(base)
    assert torch.equal(plain(tokens), scaled(tokens))


def test_alpha_of_its_own() -> None:
    scaling = Parametrization.parse({"kind": "completep", "alpha": 0.75} | BASE).at(SHAPE)
    assert scaling.branch == pytest.approx(4**-0.75)
    assert scaling.rate(start(), in_block=True) == pytest.approx(4**-0.25)


def equation(factor: float, head: float) -> Any:
    """Pre-norm whose branch outputs and logits have factors."""

    def of(o: Oracle, h: Tensor) -> Tensor:
        for site in range(o.shape.sites):
            h = h + factor * o.branch(site, o.norm(site, h))
        return h

    class Scaled(Oracle):
        def logits(self, readout: Tensor) -> Tensor:
            return head * super().logits(readout)

    return of, Scaled


@pytest.mark.parametrize(("kind", "factor"), [("depth_mup", 8**-0.5), ("completep", 1 / 8)])
def test_logits_and_gradients(kind: str, factor: float) -> None:
    of, naive = equation(factor, 1 / 2)
    assert_equation(config_of(kind, base_layers=1), of, naive=naive)


def test_start_of_matrices_in_blocks_alone_follows_the_width() -> None:
    plain = dict(Model.build(config_of("standard"), seed=0).named_parameters())
    scaled = dict(Model.build(config_of("completep"), seed=0).named_parameters())
    for name, first in plain.items():
        inner = name.startswith("blocks.") and name.endswith(".weight")
        torch.testing.assert_close(scaled[name], first * (2**-0.5 if inner else 1.0))


@pytest.mark.parametrize("backbone", ["dense", "moe", "hybrid"])
@pytest.mark.parametrize("name", REGISTRY)
def test_what_sums_over_the_width_is_declared(name: str, backbone: str) -> None:
    """Matrices whose rows grow with the width; embedding and head have rules of their own."""
    shapes = [SHAPE, SHAPE.model_copy(update={"width": 64, "heads": 8, "ffn": 96})]
    try:
        narrow, wide = (
            Model.on_meta(config_of("standard", name, shape, backbone={"name": backbone}))
            for shape in shapes
        )
    except DepthbenchError:
        pytest.skip(f"{name} does not stand in {backbone}")
    names = {id(p): n for n, p in narrow.named_parameters()}
    pairs = zip(declared(narrow), declared(wide), strict=True)
    for (one, found), (other, _) in pairs:
        path = names[id(one)]
        grows = one.ndim == 2 and other.shape[1] > one.shape[1]
        own_rule = path in ("embed.weight", "head.weight", "design.gain")
        assert found.over_width == (grows and not own_rule), path


@pytest.mark.parametrize("name", TAKERS)
def test_the_state_is_the_embedding_plus_all_outputs(name: str) -> None:
    """At the start: half of every output is half of what they all add to the readout."""
    config = config_of("standard", name)
    model = Model.build(config, seed=0, dtype=torch.float64)
    tokens = tokens_of(SHAPE)
    noise = torch.Generator().manual_seed(3)
    made = [
        torch.randn(*tokens.shape, SHAPE.width, generator=noise, dtype=torch.float64)
        for _ in range(SHAPE.sites)
    ]
    ends: list[Tensor] = []
    model.final_norm.register_forward_pre_hook(lambda _, inputs: ends.append(inputs[0].detach()))
    for share in (0.0, 0.5, 1.0):
        model(tokens, tap=lambda site, x, y, s=share: s * made[site])
    none, half, whole = ends
    size = whole.abs().max().item()
    assert (half - none - 0.5 * (whole - none)).abs().max() < 1e-9 * size
    # mHC's streams differ by what a sigmoid of -8 lets through
    assert (whole - none - sum(made)).abs().max() < 2e-2 * size


@pytest.mark.parametrize("name", [name for name in REGISTRY if name not in TAKERS])
def test_designs_that_size_their_outputs_themselves_are_refused_by_name(name: str) -> None:
    with pytest.raises(DepthbenchError, match=rf"design '{name}' norms or weighs .* prenorm, "):
        Model.on_meta(config_of("completep", name))


def test_other_refusals() -> None:
    refused = [
        (lambda: config_of("completep", {"name": "moda", "postnorm": True}), "moda.postnorm=true"),
        (lambda: config_of("depth_mup", backbone={"depth_scaled_init": True}), "Use one of the"),
        (lambda: config_of("completep", base_head_dim=16), "heads of width 32 are 8 wide"),
    ]
    for config, words in refused:
        with pytest.raises(DepthbenchError, match=words):
            Model.on_meta(config())
    with pytest.raises(DepthbenchError, match="scales nothing, so base_layers has no effect"):
        Parametrization.parse({"base_layers": 4})
    Model.on_meta(config_of("completep", base_head_dim=16, scope="depth"))


@pytest.mark.parametrize("name", ["prenorm", "hc"])
def test_decoding_and_recomputing_know_the_factors(name: str) -> None:
    model = random_model(config_of("completep", name))
    tokens = tokens_of(SHAPE, length=9)
    logits = model(tokens)
    cache = model.cache(batch=2, capacity=9)
    steps = [model.step(tokens[:, a:b], cache) for a, b in ((0, 4), (4, 5), (5, 9))]
    torch.testing.assert_close(torch.cat(steps, dim=1), logits, rtol=1e-9, atol=1e-9)
    model.checkpointing = True
    torch.testing.assert_close(model(tokens), logits, rtol=0, atol=0)


def test_a_tap_sees_what_is_written() -> None:
    model = random_model(config_of("completep"))
    seen: list[Tensor] = []
    model(tokens_of(SHAPE), tap=lambda site, x, y: seen.append(y) or y)
    plain = random_model(config_of("standard"))
    first: list[Tensor] = []
    plain(tokens_of(SHAPE), tap=lambda site, x, y: first.append(y) or y)
    torch.testing.assert_close(seen[0], first[0] / 4)


def test_every_taker_says_so_for_its_default_options() -> None:
    for name in REGISTRY:
        config = parse_design(name)
        backbone = config_of("standard", name).backbone
        with torch.device("meta"):
            design = REGISTRY[name](config, SHAPE, backbone)
        assert design.takes_branch_factor() == (name in TAKERS)
