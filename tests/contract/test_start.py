"""What holds of a fresh model of any design: seeds, counts, files, the start's function."""

from functools import cache
from pathlib import Path

import pytest
import sympy
import torch
from safetensors.torch import load_file, save_file
from sympy.parsing.sympy_parser import (
    implicit_multiplication,
    parse_expr,
    standard_transformations,
)
from torch import Tensor, nn

from depthbench.designs import REGISTRY, label_of
from depthbench.designs.base import DesignConfig
from depthbench.designs.streams import MixedStreamDesign
from depthbench.nn.count import count_parameters
from depthbench.nn.model import Model
from depthbench.nn.parameters import initialise
from tests.contract.variants import DEFAULTS, VARIANTS, variants_of
from tests.oracles import GQA, config_of, random_model, tokens_of

every = pytest.mark.parametrize("design", VARIANTS.values(), ids=VARIANTS.keys())


@every
def test_same_seed_same_bits_and_other_seed_other_bits(design: DesignConfig) -> None:
    first, second, other = (Model.build(config_of(design), seed) for seed in (1, 1, 2))
    others = dict(other.named_parameters())
    for (name, one), two in zip(first.named_parameters(), second.parameters(), strict=True):
        assert torch.equal(one, two), name
        drawn = one.unique().numel() > 3
        assert torch.equal(one, others[name]) != drawn, name
    tokens = tokens_of(GQA)
    assert torch.equal(first(tokens), second(tokens))
    assert not torch.allclose(first(tokens), other(tokens))


@every
def test_building_on_meta_gives_what_building_on_cpu_gives(design: DesignConfig) -> None:
    fresh = Model(config_of(design))
    for parameter in fresh.parameters():
        nn.init.constant_(parameter, float("nan"))
    initialise(fresh, seed=4)
    built = dict(Model.build(config_of(design), seed=4).named_parameters())
    for name, parameter in fresh.named_parameters():
        assert torch.equal(parameter, built[name]), name
        assert parameter.isfinite().all(), name


@every
@pytest.mark.parametrize("assign", [False, True])
def test_save_and_load_into_a_meta_model(
    design: DesignConfig, assign: bool, tmp_path: Path
) -> None:
    model = random_model(config_of(design))
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    empty = Model.on_meta(config_of(design))
    if not assign:
        empty = empty.double().to_empty(device="cpu")
        for parameter in empty.parameters():
            nn.init.constant_(parameter, float("nan"))
    empty.load_state_dict(load_file(tmp_path / "model.safetensors"), assign=assign)
    assert torch.equal(empty(tokens_of(GQA)), model(tokens_of(GQA)))


@every
def test_state_is_parameters_alone(design: DesignConfig) -> None:
    """Constants kept in buffers would be lost by building on meta."""
    model = Model.on_meta(config_of(design))
    assert list(model.buffers()) == []
    assert model.state_dict().keys() == dict(model.named_parameters()).keys()


@every
def test_counts_from_meta_are_those_of_the_real_model(design: DesignConfig) -> None:
    counts = count_parameters(config_of(design))
    total = sum(p.numel() for p in Model.build(config_of(design), seed=0).parameters())
    assert counts.total == total == counts.backbone + counts.embedding_and_head + counts.own
    d, heads = 32, 2 * 8
    assert counts.backbone == 3 * (2 * d * d + 2 * d * heads + 3 * d * 24 + 2 * d) + d
    assert counts.embedding_and_head == 2 * 99 * d


@pytest.mark.parametrize("name", DEFAULTS)
def test_own_parameters_are_those_of_the_card(name: str) -> None:
    """The formula that tables print, evaluated."""
    symbols = {"L": 3, "d": 32, "m": 4, "kv_heads": 2, "head_dim": 8}
    options = vars(DEFAULTS[name])
    # as check/formula.py takes them: 1 for true
    symbols |= {key: int(value) for key, value in options.items() if isinstance(value, bool)}
    text = REGISTRY[name].card.own.replace("²", "**2").replace("·", "*")
    names = {symbol: sympy.Symbol(symbol) for symbol in symbols}
    rules = (*standard_transformations, implicit_multiplication)
    formula = parse_expr(text, local_dict=names, transformations=rules)
    assert count_parameters(config_of(name)).own == formula.subs(symbols)


def loss_gradients(model: Model) -> dict[str, float]:
    """Largest entry of every parameter's gradient of a next-token loss."""
    tokens = tokens_of(GQA, batch=4, length=9)
    model.zero_grad()
    logits = model(tokens[:, :-1])
    nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
    return {
        name: 0.0 if p.grad is None else p.grad.abs().max().item()
        for name, p in model.named_parameters()
    }


@every
def test_every_parameter_trains(design: DesignConfig) -> None:
    """After one step every gradient is nonzero; of a matrix that starts at 0, at once.

    Where streams are mixed with weights that sum to 1, the first mix (of equal streams) and the
    last (before a mean) change nothing: there it is enough that the same parameter of a site
    in between trains.
    """
    model = Model.build(config_of(design), seed=0, dtype=torch.float64)
    gradients = loss_gradients(model)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1 and not parameter.any():
            assert gradients[name] > 1e-12, name
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 10 * (torch.zeros(()) if parameter.grad is None else parameter.grad)
    gradients = loss_gradients(model)
    for name, gradient in gradients.items():
        ends = ("blocks.0.attention_connection.", "blocks.2.feedforward_connection.")
        if isinstance(model.design, MixedStreamDesign) and name.startswith(ends):
            own = name.rpartition("connection.")[2]
            gradient = gradients[f"blocks.1.attention_connection.{own}"]
        assert gradient > 1e-14, name


@every
def test_start_equals_prenorm_where_the_design_says_so(design: DesignConfig) -> None:
    """At an eps that hides nothing: a norm is blind to the scale of its input but for eps."""
    double, single = (distance_to_prenorm(design, dtype) for dtype in (torch.double, torch.float))
    claimed = distance_claimed(design)
    if claimed is None:
        assert double > 1e-3
    else:
        assert double <= claimed
        assert single <= claimed + 2e-6


@pytest.mark.parametrize("name", DEFAULTS)
def test_claimed_distance_is_no_excuse(name: str) -> None:
    """A tenth of it, or rounding, is really seen."""
    claimed = distance_claimed(DEFAULTS[name])
    alike = [d for d in variants_of(name) if distance_claimed(d) is not None]
    seen = max((distance_to_prenorm(design, torch.double) for design in alike), default=0.0)
    assert claimed is None or claimed < 1e-12 or seen > claimed / 10


def distance_claimed(design: DesignConfig) -> float | None:
    """What the design says of its start."""
    return Model.on_meta(config_of(design)).design.distance_at_start()


def distance_to_prenorm(design: DesignConfig, dtype: torch.dtype) -> float:
    """Largest difference of the logits at the start, over the largest logit."""
    plain, other = (start_logits(label_of(each), dtype) for each in (DEFAULTS["prenorm"], design))
    return ((other - plain).abs().max() / plain.abs().max()).item()


@cache
def start_logits(label: str, dtype: torch.dtype) -> Tensor:
    """Of six blocks at the least eps, on more tokens than a segment has by default."""
    config = config_of(VARIANTS[label], GQA.model_copy(update={"layers": 6}), norm_eps=1e-12)
    with torch.no_grad():
        return Model.build(config, seed=0, dtype=dtype)(tokens_of(GQA, length=80))
