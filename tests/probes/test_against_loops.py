"""Every probe against a loop written by hand, in float64."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from depthbench.nn.block import Trace
from depthbench.nn.model import Model
from depthbench.probes.ablate import Exit, Prune, Recompute, Repeat
from depthbench.probes.angular import Angular, angles
from depthbench.probes.causal import Causal
from depthbench.probes.cka import CKA
from depthbench.probes.contribution import Contribution
from depthbench.probes.jacobian import Jacobian
from depthbench.probes.lens import Lens, half_depth
from depthbench.probes.measures import call_of, unit
from depthbench.probes.permutation import Permutation
from depthbench.probes.probe import Probe
from depthbench.probes.rank import Rank
from depthbench.probes.result import Curve, Matrix, ProbeResult
from depthbench.probes.usefulness import Usefulness
from tests.probes.small import in_batches, lab_of, random_own, rows

TEXTS = rows((14, 14, 9, 14, 6, 14))
DESIGNS = ("prenorm", "hc", "attnres", "moda")
LAYERS = 4


def found(model: Model, probe: Probe) -> ProbeResult:
    return probe.run(lab_of(model, in_batches(TEXTS, 2)))


def numbers(one: Curve | Matrix) -> np.ndarray:
    return np.array(one.values, dtype=np.float64)


@torch.no_grad()
def loss(model: Model, order: list[int] | None = None, texts: Any = TEXTS) -> float:
    total, count = 0.0, 0
    for text in texts:
        tokens = torch.tensor([text])
        logits = model(tokens, program=order)
        total += functional.cross_entropy(logits[0, :-1], tokens[0, 1:], reduction="sum").item()
        count += len(text) - 1
    return total / count


@torch.no_grad()
def states(model: Model, order: list[int] | None = None) -> list[Tensor]:
    """By depth: states of all tokens of all texts, one after another."""
    found = []
    for text in TEXTS:
        trace = Trace()
        model(torch.tensor([text]), program=order, trace=trace)
        found.append(torch.stack(trace.depth_states)[:, 0])
    return list(torch.cat(found, dim=1))


@pytest.mark.parametrize("design", DESIGNS)
def test_angular(design: str) -> None:
    model = random_own(design, LAYERS)
    z = states(model)
    result = numbers(found(model, Angular()).matrix("angle"))
    for i in range(LAYERS + 1):
        for j in range(LAYERS + 1):
            cosine = functional.cosine_similarity(z[i], z[j], dim=-1).clamp(-1, 1)
            expected = (torch.arccos(cosine) / math.pi).mean().item()
            # arccos of a cosine near 1 keeps half of the digits
            assert result[i, j] == pytest.approx(expected, abs=1e-7)
    assert (np.diagonal(result) == 0).all()


def test_small_angles_keep_their_digits() -> None:
    for angle in (1e-3, 1e-6, 1e-9, 1e-13):
        one = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
        other = torch.tensor([[[math.cos(angle), math.sin(angle), 0.0]]], dtype=torch.float64)
        assert angles(unit(one), unit(other)).item() == pytest.approx(angle / math.pi, rel=1e-3)
    # rounding alone can make the cosine more than 1
    x = torch.full((1, 3), 0.1, dtype=torch.float32)
    assert angles(unit(x), unit(x)[None]).item() == 0
    assert angles(unit(x), -unit(x)[None]).item() == 1


@pytest.mark.parametrize("design", DESIGNS)
def test_causal(design: str) -> None:
    model = random_own(design, LAYERS)
    z = states(model)
    result = numbers(found(model, Causal()).matrix("effect"))
    for s in range(LAYERS):
        order = [block for block in range(LAYERS) if block != s]
        without = states(model, order)
        for l in range(LAYERS):  # noqa: E741
            if l <= s:
                assert np.isnan(result[s, l])
                continue
            change = (z[l + 1] - z[l]) - (without[l] - without[l - 1])
            expected = change.norm(dim=-1).mean() / (z[l + 1] - z[l]).norm(dim=-1).mean()
            assert result[s, l] == pytest.approx(expected.item(), rel=1e-10)


@pytest.mark.parametrize("design", DESIGNS)
def test_losses_of_programs(design: str) -> None:
    model = random_own(design, LAYERS)
    own = loss(model)
    swaps = numbers(found(model, Permutation()).matrix("change"))
    for i in range(LAYERS):
        for j in range(i + 1, LAYERS):
            order = list(range(LAYERS))
            order[i], order[j] = j, i
            expected = abs(loss(model, order) - own) / own
            assert swaps[i, j] == swaps[j, i] == pytest.approx(expected, rel=1e-9, abs=1e-12)
    pruned = found(model, Prune())
    assert pruned.number("loss").value == pytest.approx(own, rel=1e-12)
    # every token is one byte, but the first of a text is not predicted
    assert pruned.number("bits_per_byte").value == pytest.approx(own / math.log(2), rel=1e-12)
    again, cut = found(model, Repeat()), found(model, Exit())
    for block in range(LAYERS):
        order = list(range(LAYERS))
        without = loss(model, order[:block] + order[block + 1 :]) - own
        twice = loss(model, order[: block + 1] + order[block:]) - own
        assert pruned.curve("block").values[block] == pytest.approx(without, rel=1e-8, abs=1e-10)
        assert again.curve("block").values[block] == pytest.approx(twice, rel=1e-8, abs=1e-10)
        early = loss(model, order[:block])
        assert cut.curve("loss").values[block] == pytest.approx(early, rel=1e-12)
    assert cut.curve("loss").values[LAYERS] == pytest.approx(own, rel=1e-12)
    spans = numbers(found(model, Recompute(longest=3)).matrix("span"))
    expected = loss(model, [0, 1, 2, 3, 1, 2, 3]) - own
    assert spans[1, 3] == pytest.approx(expected, rel=1e-8, abs=1e-10)
    assert np.isnan(spans[0, 3])
    assert np.isnan(spans[2, 1])


def test_branches_left_out() -> None:
    model = random_own("prenorm", LAYERS)
    own, result = loss(model), found(model, Prune())

    def without(site: int) -> float:
        def tap(at: int, _: Tensor, y: Tensor) -> Tensor:
            return torch.zeros_like(y) if at == site else y

        total, count = 0.0, 0
        with torch.no_grad():
            for text in TEXTS:
                tokens = torch.tensor([text])
                logits = model(tokens, tap=tap)[0, :-1]
                total += functional.cross_entropy(logits, tokens[0, 1:], reduction="sum").item()
                count += len(text) - 1
        return total / count - own

    for block in range(LAYERS):
        for name, site in (("attention", 2 * block), ("feedforward", 2 * block + 1)):
            expected = without(site)
            assert result.curve(name).values[block] == pytest.approx(expected, rel=1e-8, abs=1e-10)


@pytest.mark.parametrize("design", DESIGNS)
@torch.no_grad()
def test_lens(design: str) -> None:
    model = random_own(design, LAYERS)
    result = found(model, Lens(best=3))
    count = sum(len(text) - 1 for text in TEXTS)
    for depth in range(LAYERS + 1):
        nats = divergence = overlap = 0.0
        for text in TEXTS:
            tokens = torch.tensor([text])
            here = model(tokens, program=list(range(depth)))[0, :-1].log_softmax(-1)
            final = model(tokens)[0, :-1].log_softmax(-1)
            nats -= here.gather(1, tokens[0, 1:, None]).sum().item()
            divergence += functional.kl_div(here, final, log_target=True, reduction="sum").item()
            for a, b in zip(here.topk(3).indices, final.topk(3).indices, strict=True):
                overlap += len({*a.tolist()} & {*b.tolist()}) / 3
        assert result.curve("loss").values[depth] == pytest.approx(nats / count, rel=1e-12)
        # differences of logits in float32
        expected = pytest.approx(divergence / count, rel=1e-8, abs=1e-10)
        assert result.curve("divergence").values[depth] == expected
        assert result.curve("overlap").values[depth] == pytest.approx(overlap / count, rel=1e-12)


def test_half_depth_lies_where_the_divergence_stays_low() -> None:
    assert half_depth(np.array([4.0, 3.0, 1.0, 0.0])) == pytest.approx(1.5)
    # it comes back up: the first crossing does not count
    assert half_depth(np.array([4.0, 1.0, 3.0, 0.0])) == pytest.approx(2 + 1 / 3)
    assert half_depth(np.array([0.0, 0.0])) == 0


@pytest.mark.parametrize("design", ["prenorm", "hc", "attnres"])
@torch.no_grad()
def test_usefulness(design: str) -> None:
    """Least squares by another routine, on the same half of the batches."""
    model = random_own(design, LAYERS)
    result = found(model, Usefulness())
    fit, test = [*TEXTS[0:2], *TEXTS[4:6]], TEXTS[2:4]
    own = loss(model, texts=test)
    for block in range(LAYERS):
        expected = linear_loss(model, block, least_squares(model, block, fit), test) / own - 1
        got = result.curve("growth").values[block]
        # sums of squares keep half of the digits that least squares itself keeps
        assert got == pytest.approx(expected, rel=1e-4, abs=1e-6)


def least_squares(model: Model, block: int, texts: Any) -> list[Tensor]:
    """Maps of the depth state before the block to the outputs of its branches."""
    before: list[Tensor] = []
    outputs: tuple[list[Tensor], list[Tensor]] = ([], [])

    def keep(site: int, _: Tensor, out: Tensor) -> Tensor:
        if site // 2 == block:
            outputs[site % 2].append(out[0])
        return out

    for text in texts:
        trace = Trace()
        model(torch.tensor([text]), trace=trace, tap=keep)
        before.append(trace.depth_states[block][0])
    z = torch.cat(before)
    return [
        torch.linalg.lstsq(z, torch.cat(one), driver="gelsd", rcond=1e-8).solution
        for one in outputs
    ]


def linear_loss(model: Model, block: int, maps: list[Tensor], texts: Any) -> float:
    total, count = 0.0, 0
    for text in texts:
        tokens, trace = torch.tensor([text]), Trace()
        model(tokens, trace=trace)
        z = trace.depth_states[block]

        def replace(site: int, _: Tensor, out: Tensor, z: Tensor = z) -> Tensor:
            return z @ maps[site % 2] if site // 2 == block else out

        logits = model(tokens, tap=replace)[0, :-1]
        total += functional.cross_entropy(logits, tokens[0, 1:], reduction="sum").item()
        count += len(text) - 1
    return total / count


@pytest.mark.parametrize("design", DESIGNS)
def test_rank_and_cka(design: str) -> None:
    model = random_own(design, LAYERS)
    z = [one.double() for one in states(model)]
    rank, cka = found(model, Rank()), numbers(found(model, CKA()).matrix("cka"))
    for depth, one in enumerate(z):
        for name, matrix in (("", one), ("_centred", one - one.mean(0))):
            values = torch.linalg.svdvals(matrix)
            stable = (values.square().sum() / values[0] ** 2).item()
            shares = values / values.sum()
            entropy = torch.exp(-torch.special.xlogy(shares, shares).sum()).item()
            got = rank.curve(f"stable{name}").values[depth]
            assert got == pytest.approx(stable, rel=1e-8)
            # small singular values come from the square root of rounding
            assert rank.curve(f"entropy{name}").values[depth] == pytest.approx(entropy, rel=1e-5)
        for other_depth, other in enumerate(z):
            a, b = one - one.mean(0), other - other.mean(0)
            expected = (a.T @ b).norm() ** 2 / ((a.T @ a).norm() * (b.T @ b).norm())
            assert cka[depth, other_depth] == pytest.approx(expected.item(), rel=1e-8)
    assert np.diagonal(cka) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("design", DESIGNS)
def test_contribution(design: str) -> None:
    model = random_own(design, LAYERS)
    z, result = states(model), found(model, Contribution())
    for block in range(LAYERS):
        u = z[block + 1] - z[block]
        size = (u.norm(dim=-1) / z[block].norm(dim=-1)).mean().item()
        along = functional.cosine_similarity(u, z[block], dim=-1).mean().item()
        assert result.curve("size_block").values[block] == pytest.approx(size, rel=1e-9)
        assert result.curve("along_block").values[block] == pytest.approx(along, rel=1e-9)


@pytest.mark.parametrize("design", ["prenorm", "hc", "moda", "postnorm", "momentum"])
def test_jacobian(design: str) -> None:
    """Against one derivative after another by the whole model's own path."""
    model = random_own(design, 3, width=16)
    lab = lab_of(model, in_batches(TEXTS[:2], 2))
    context = 5
    result = Jacobian(context=context, exact=1024, values=16).run(lab)
    session = lab.subject.session(in_batches([text[:context] for text in TEXTS[:2]], 2).batches[0])
    distances, spectra = [], []
    with session.differentiable():
        state = session.open()
        for block in range(3):
            z = session.depth_state(state).detach()
            width = z.shape[-1]

            def after(x: Tensor, row: int, state: Any = state, z: Tensor = z, block: int = block):
                moved = z.clone()
                moved[row, -1] = x
                own = session.with_depth_state(state, moved)
                call = session.run(call_of(block), own, 1)
                return session.depth_state(call)[row, -1]

            rows_of = [
                torch.autograd.functional.jacobian(lambda x, r=row: after(x, r), z[row, -1])
                for row in range(2)
            ]
            eye = torch.eye(width, dtype=z.dtype)
            distances.append(
                np.mean([(one - eye).norm().item() / math.sqrt(width) for one in rows_of])
            )
            spectra.append(np.mean([torch.linalg.svdvals(one)[:16].numpy() for one in rows_of], 0))
            with torch.no_grad():
                state = session.run(call_of(block), state, 1)
    assert result.curve("distance").values == pytest.approx(distances, rel=1e-9)
    assert pytest.approx(np.array(spectra), rel=1e-8) == numbers(result.matrix("spectrum")).T


def test_random_products_estimate_the_jacobian() -> None:
    model = random_own("prenorm", 2, width=64)
    lab = lab_of(model, in_batches(rows((9,) * 4), 4))
    exact = Jacobian(context=8, exact=64, values=48).run(lab)
    drawn = Jacobian(context=8, exact=63, values=48).run(lab)
    # 48 vectors and 4 texts: a relative error of about sqrt(2 / (48 · 4 · 64))
    assert drawn.curve("distance").values == pytest.approx(exact.curve("distance").values, rel=0.05)
    largest = numbers(exact.matrix("spectrum"))[0]
    assert numbers(drawn.matrix("spectrum"))[0] == pytest.approx(largest, rel=0.05)
    # an orthonormal basis can only lose
    assert (numbers(drawn.matrix("spectrum")) <= numbers(exact.matrix("spectrum")) + 1e-9).all()
    assert "estimates" in drawn.words[0]
