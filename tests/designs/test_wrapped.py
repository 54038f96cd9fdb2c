"""Designs around branches of other models: the same equations, and nets that train with them."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from depthbench.designs import REGISTRY, wrap
from depthbench.errors import DepthbenchError
from depthbench.nn.branch import Context
from depthbench.nn.model import Model
from depthbench.nn.rope import rotary_table
from tests.oracles import GQA, assert_equal, config_of, tokens_of

OUTSIDE = [name for name, kind in REGISTRY.items() if not kind.in_attention]


class Alone(nn.Module):
    """A branch of ours as a module of one argument."""

    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, x: Tensor) -> Tensor:
        cos, sin = rotary_table(x.shape[1], GQA.head_dim, 10000.0, x.device, x.dtype)
        return self.branch(x, Context(cos, sin))[0]


def branches_of(model: Model) -> list[nn.Module]:
    return [Alone(branch) for _, branch, _ in model.sites()]


def noise(*axes: int) -> Tensor:
    return torch.randn(axes, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("name", OUTSIDE)
def test_around_our_own_branches_it_is_our_model(name: str) -> None:
    """With the parameters of every connection and of the design copied over."""
    model = Model.build(config_of(name), seed=0, dtype=torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * noise(*parameter.shape)
    wrapped = wrap(name, branches_of(model), GQA.width).double()
    wrapped.design.load_state_dict(model.design.state_dict())
    for number, (_, _, connection) in enumerate(model.sites()):
        wrapped.connections[number].load_state_dict(connection.state_dict())
    tokens = tokens_of(GQA)
    hidden = model.final_norm(wrapped(model.embed(tokens)))
    logits = model.head(hidden, model.embed.weight)
    assert_equal(logits, model(tokens), name)


@pytest.mark.parametrize("name", OUTSIDE)
def test_own_parameters_start_as_in_a_model(name: str) -> None:
    """By their declared starts, from the seed alone; the branches stay as they are."""
    linears = [nn.Linear(8, 8) for _ in range(4)]
    before = [linear.weight.clone() for linear in linears]
    wrapped, again = (wrap(name, linears, 8, seed=3) for _ in range(2))
    for one, other in zip(wrapped.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
        assert one.isfinite().all()
    for linear, weight in zip(linears, before, strict=True):
        assert torch.equal(linear.weight, weight)


def test_rows_without_a_time_axis() -> None:
    wrapped = wrap("hc", [nn.Linear(8, 8) for _ in range(4)], 8).double()
    x = noise(5, 8)
    torch.testing.assert_close(wrapped(x), wrapped(x[:, None])[:, 0], rtol=1e-12, atol=1e-13)


def deep_net(design: str, layers: int, width: int) -> nn.Module:
    """A fully connected net; the design brings the skips."""
    torch.manual_seed(0)
    branches = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(layers)]
    return nn.Sequential(wrap(design, branches, width), nn.Linear(width, 2))


def accuracies(net: nn.Module, steps: int) -> tuple[float, float]:
    """Before and after training to tell whether the first coordinate is above the second."""
    x = noise(256, 16).float()
    labels = (x[:, 0] > x[:, 1]).long()
    optimizer = torch.optim.Adagrad(net.parameters(), lr=0.01)

    def accuracy() -> float:
        return (net(x).argmax(-1) == labels).float().mean().item()

    before = accuracy()
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), labels).backward()
        optimizer.step()
    return before, accuracy()


@pytest.mark.slow
def test_rezero_trains_a_fully_connected_net_of_1000_layers() -> None:
    """As its paper says; without a residual the same net learns nothing."""
    _, rezero = accuracies(deep_net("rezero", 1000, 16), steps=25)
    assert rezero > 0.95
    _, plain = accuracies(deep_net("plain", 1000, 16), steps=5)
    assert plain < 0.6


class Patches(nn.Module):
    """Mixes the 16 patches of an image with each other: a token-mixing branch."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(x.transpose(-1, -2)).transpose(-1, -2)


@pytest.mark.parametrize("design", ["prenorm", "hc", "attnres"])
def test_an_mlp_mixer_on_images_learns(design: str) -> None:
    """Which half of an image of 16 patches is brighter."""
    torch.manual_seed(0)
    branches: list[nn.Module] = []
    for _ in range(3):
        branches += [Patches(), nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))]
    body, head = wrap(design, branches, 8), nn.Linear(8, 2)
    images = noise(64, 16, 8).float()
    labels = (images[:, :8].sum((1, 2)) > images[:, 8:].sum((1, 2))).long()
    optimizer = torch.optim.AdamW([*body.parameters(), *head.parameters()], lr=1e-2)
    losses = []
    for _ in range(60):
        loss = nn.functional.cross_entropy(head(body(images).mean(1)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 < 0.5 < losses[0]


LINEARS = [nn.Linear(8, 8), nn.Linear(8, 8)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("moda", LINEARS, 8), "'moda' changes what attention computes"),
        (("hc", LINEARS[:1], 8), "1 branches.*even number"),
        (("hc", [], 8), "0 branches"),
        (("hc", LINEARS, 7), "width = 7: an even number"),
        (("hcc", LINEARS, 8), "hcc"),
    ],
)
def test_what_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(DepthbenchError, match=message):
        wrap(*arguments)


PLAIN = """
import torch
from depthbench.designs import wrap
from depthbench.errors import DepthbenchError
from depthbench.nn.generate import generate
from depthbench.nn.model import Model, ModelConfig
from depthbench.shapes import Shape

linears = [torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)]
shape = Shape(layers=1, width=8, heads=1, kv_heads=1, ffn=8, vocab=9)
model = Model.build(ModelConfig(shape=shape, design="hc"), 0)
for act in (
    lambda: wrap("hc", linears, "8"),
    lambda: wrap("hc", [abs, abs], 8),
    lambda: generate(model, torch.tensor([3, 4]), 1),
    lambda: generate(model, torch.zeros(1, 3), 1),
):
    try:
        act()
    except DepthbenchError as error:
        print(error)
"""


def test_kinds_that_shape_checks_would_refuse_first() -> None:
    """So in a process without the checks that this session's tests run with."""
    done = subprocess.run([sys.executable, "-c", PLAIN], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    assert lines[0] == "width = '8': an even number is needed here"
    assert lines[1].startswith("branch 0 is a builtin_function_or_method")
    assert lines[2].startswith("tokens have shape (2,)")
    assert "dtype torch.float32" in lines[3]


class Turned(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mT


@pytest.mark.parametrize(
    ("branch", "shape", "message"),
    [
        (Turned(), (2, 4, 8), r"branch 0 made \(2, 4, 8\) into \(2, 8, 4\)"),
        (nn.Flatten(0, 1), (2, 4, 8), r"branch 0 made .* into \(8, 8\)"),
        (nn.Linear(8, 9), (2, 4, 8), r"into \(2, 4, 9\)"),
        (nn.GRU(8, 8), (2, 4, 8), "branch 0 returned a tuple"),
    ],
)
def test_a_branch_that_keeps_no_shape_is_named(
    branch: nn.Module, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(DepthbenchError, match=message):
        wrap("prenorm", [branch, branch], 8)(torch.zeros(shape))


def test_an_input_of_another_width_is_refused() -> None:
    with pytest.raises(DepthbenchError, match=r"shape \(2, 6\).*width 8"):
        wrap("hc", LINEARS, 8)(torch.zeros(2, 6))
