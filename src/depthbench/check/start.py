"""Laws of a fresh model: what it says of itself, its seed, its file, its count."""

import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from depthbench.check.law import Outcome, broken, held, none, within
from depthbench.check.subject import SMALL, Subject, distance, tokens_of
from depthbench.cost.flops import count_flops
from depthbench.designs.base import Fact
from depthbench.nn.block import Trace
from depthbench.nn.count import count_parameters
from depthbench.nn.kernels import plain_kernels
from depthbench.nn.model import Model, ModelConfig
from depthbench.nn.parameters import initialise

TINY_EPS = 1e-12
"""Of the norms where a start is compared: a larger one hides nothing but adds a distance."""
OTHER_ROUNDING = 2
"""Designs state their distance under autocast for dense branches. A router that changes its choice
for a few tokens, or a scan, moves the logits further."""


def facts(subject: Subject) -> Outcome:
    """Numbers that the equation fixes, measured."""
    found = subject.on_meta().design.facts()
    if not found:
        return none("the design states no facts")
    for fact in found:
        if not isinstance(fact, Fact):
            return broken(f"facts() returns a {type(fact).__name__}, but each must be a Fact")
        if not abs(fact.measured - fact.expected) <= fact.tolerance:
            return broken(f"{fact.name}: {fact.measured:.10g}, but must be {fact.expected:.10g}")
    return held("; ".join(fact.name for fact in found))


def seeds(subject: Subject) -> Outcome:
    """The same seed gives the same bits, on meta and on CPU; another gives others."""
    config = subject.config()
    first, second, other = (Model.build(config, seed) for seed in (1, 1, 2))
    fresh = Model(config)
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.fill_(float("nan"))
    initialise(fresh, 1)
    rows = zip(first.named_parameters(), second.parameters(), fresh.parameters(), strict=True)
    for (name, one), two, three in rows:
        if not (torch.equal(one, two) and torch.equal(one, three)):
            return broken(f"{name} differs between two builds with one seed")
    if all(torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True)):
        return broken("another seed gives the same model")
    return held("two builds, meta and CPU")


@torch.no_grad()
def saving(subject: Subject) -> Outcome:
    """Saved and loaded into a model from the meta device, the function is the same."""
    model, tokens = subject.random, tokens_of()
    if list(model.buffers()):
        return broken("a buffer holds a constant: building on the meta device would lose it")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        save_file(model.state_dict(), path)
        empty = subject.on_meta()
        empty.load_state_dict(load_file(path), assign=True)
    if not torch.equal(empty(tokens), model(tokens)):
        return broken("the loaded model gives other logits")
    return held("logits bit for bit")


@torch.no_grad()
def start(subject: Subject) -> Outcome:
    """As far from `prenorm` at the start as the design says."""
    deep = SMALL.model_copy(update={"layers": 6})
    config, plain = (s.config(deep, norm_eps=TINY_EPS) for s in (subject, subject.plain()))
    tokens = tokens_of(length=16)
    logits, expected = (
        Model.build(each, seed=0, dtype=torch.float64)(tokens) for each in (config, plain)
    )
    claimed, seen = Model.on_meta(config).design.distance_at_start(), distance(logits, expected)
    if not logits.isfinite().all():
        return broken("the logits at the start are not finite")
    if claimed is None:
        return Outcome("none", seen, None, "distance to prenorm; no start like it is claimed")
    return within(seen, claimed, "distance to prenorm")


def parameters(subject: Subject) -> Outcome:
    """Counted on the meta device, on a real model, and by the card's formula."""
    config = subject.config()
    counts = count_parameters(config)
    real = sum(p.numel() for p in Model(config).parameters())
    if real != counts.total:
        return broken(f"{real} parameters in a real model, {counts.total} on the meta device")
    card = Model.on_meta(config).design.card
    # sympy takes long to import
    from depthbench.check.formula import evaluated

    said = evaluated(card.own, subject.design, SMALL)
    if said is None:
        return broken(f"the card's own = '{card.own}' is no formula in L, d, m, kv_heads, head_dim")
    if said != counts.own:
        return broken(f"the card says {card.own} = {said}, but the design adds {counts.own}")
    return held(f"{counts.total:,} in all, {counts.own:,} own = {card.own}")


def operations(subject: Subject) -> Outcome:
    """Matrix products as stated, and as torch's counter sees them.

    The plain version of routed experts runs all of them, but those that are chosen are stated:
    what `prenorm` runs beyond its statement on this backbone is allowed to the design as well.
    """
    plain = subject.plain().config()
    beyond = counted(plain) - products(plain)
    ours, theirs = products(subject.config()), counted(subject.config()) - beyond
    if ours != theirs:
        return broken(f"{ours:,} operations are stated, torch's counter sees {theirs:,}")
    own = count_flops(subject.config(), tokens_of().shape[1])
    return held(f"{ours:,} in products; the design adds {own.own_products:,} and {own.own_sums:,}")


def products(config: ModelConfig) -> int:
    """What the modules state, with the whole square of attention's scores."""
    flops = count_flops(config, tokens_of().shape[1])
    return flops.projections + 2 * flops.attention + flops.head + flops.own_products


@torch.no_grad()
def counted(config: ModelConfig) -> int:
    """What `torch.utils.flop_counter` sees of one sequence in the plain version."""
    model, tokens = Model.build(config, seed=0), tokens_of(batch=1)
    with sdpa_kernel(SDPBackend.MATH), plain_kernels(), FlopCounterMode(display=False) as counter:
        model(tokens)
    return counter.get_total_flops()


def _perturbed(subject: Subject) -> Model:
    model = Model.build(subject.config(), seed=0)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    return model


@torch.no_grad()
def precision(subject: Subject) -> Outcome:
    """Under bfloat16 autocast logits stay near float32's, and states in float32."""
    model, tokens, trace = _perturbed(subject), tokens_of(length=16), Trace()
    exact = model(tokens)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model(tokens, trace=trace).float()
    for state in trace.depth_states:
        if state.dtype != torch.float32:
            return broken(f"a depth state is {state.dtype} under autocast")
    off = (rounded - exact).square().mean().sqrt() / exact.square().mean().sqrt()
    limit = model.design.autocast_distance
    if subject.backbone.name != "dense":
        limit *= OTHER_ROUNDING
    return within(off.item(), limit, "logits under bfloat16 autocast, root mean square")
