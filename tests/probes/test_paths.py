"""Path weights, streams and dead zones against what is known of them."""

import math

import numpy as np
import pytest
import torch

from depthbench.designs import REGISTRY
from depthbench.probes.batch import Batch
from depthbench.probes.mixing import effective_rank
from depthbench.probes.own import OwnSession, OwnSubject
from depthbench.probes.paths import Paths, look_back, paths_of
from depthbench.probes.result import ProbeResult
from depthbench.probes.routes import Routes
from depthbench.probes.streams import Streams
from tests.probes.small import in_batches, lab_of, random_own, rows

BATCH = Batch.of_rows(rows((10, 10, 7)))
TEXT = in_batches(rows((12,) * 4), 2)
UNEQUAL = in_batches(rows((12, 12, 12, 12, 5)), 2)
LAYERS = 4


def routes(design: object, layers: int = LAYERS) -> ProbeResult:
    return Routes(shown=8).run(lab_of(random_own(design, layers), TEXT))


@pytest.mark.parametrize("design", REGISTRY)
def test_parts_add_up_to_what_is_read(design: str) -> None:
    """CASES 28: contributions of all branches through the path weights are the final state."""
    session = OwnSubject(random_own(design, LAYERS), "test").session(BATCH)
    paths = paths_of(session)
    size = paths.inputs.abs().max().item()
    torch.testing.assert_close(paths.parts.sum(1), paths.inputs, rtol=1e-9, atol=1e-12 * size)
    torch.testing.assert_close(
        paths.shares().sum(1), torch.ones_like(paths.shares()[:, 0]), rtol=1e-9, atol=1e-9
    )
    # what the model itself reads out, by its own forward
    model = session.model
    hidden = paths.inputs[-1]
    torch.testing.assert_close(
        model.end(hidden)[BATCH.valid],
        session.own_logits()[BATCH.valid],
        rtol=1e-8,
        atol=1e-8,
    )


def test_weights_that_are_known() -> None:
    session = OwnSubject(random_own("prenorm", LAYERS), "test").session(BATCH)
    weights = paths_of(session).weights()
    for target, row in enumerate(weights):
        torch.testing.assert_close(row[: target + 1], torch.ones_like(row[: target + 1]))
        assert (row[target + 1 :] == 0).all()


@torch.no_grad()
def test_weights_of_attention_over_depth_are_its_softmax() -> None:
    session = OwnSubject(random_own("attnres", LAYERS), "test").session(BATCH)
    weights = paths_of(session).weights()
    for site, route in session.trace().routes:
        expected = route.__dict__["weights"]
        torch.testing.assert_close(weights[site][: len(expected)], expected.double())


def test_the_probe_of_routes() -> None:
    result = routes("prenorm")
    # all weights are 1: as many sources as there are, looking back half of the way
    sources = result.curve("sources").values
    assert sources == pytest.approx([1.0 + n for n in range(2 * LAYERS + 1)])
    assert result.curve("back").values == pytest.approx([n / 2 for n in range(2 * LAYERS + 1)])
    weight = np.array(result.matrix("weight").values, dtype=float)
    assert np.isnan(weight[0, 1:]).all()
    assert np.array(result.matrix("spread").values, dtype=float)[-1] == pytest.approx(0, abs=1e-6)
    by_token = np.array(result.matrix("back_by_token").values, dtype=float)
    assert by_token.shape == (2 * LAYERS + 1, 8)
    assert by_token[4] == pytest.approx(2.0)
    places = result.curve("back_by_position")
    assert places.places == tuple(float(n) for n in range(12))


def test_paths_of_a_batch_are_formed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []

    def heard(session: OwnSession) -> Paths:
        seen.append(session.batch.documents)
        return paths_of(session)

    monkeypatch.setattr("depthbench.probes.routes.paths_of", heard)
    lab = lab_of(random_own("hc", LAYERS), UNEQUAL)
    result = Routes(shown=3).run(lab)
    assert seen == [batch.documents for batch in UNEQUAL.batches]
    [first, *_] = UNEQUAL.batches
    session = lab.subject.session(first)
    assert isinstance(session, OwnSession)
    _, back = look_back(paths_of(session).weights()[:, :, 0, :3])
    shown = np.array(result.matrix("back_by_token").values, dtype=float)
    np.testing.assert_allclose(shown, back.numpy(), rtol=1e-12)


def test_batches_of_unequal_rows() -> None:
    """The last row of a text is cut to fit, so its batch is shorter."""
    found = Routes(shown=8).run(lab_of(random_own("hc", LAYERS), UNEQUAL))
    assert len(found.curve("back_by_position").values) == 12
    assert found.curve("back").values[0] == 0


@torch.no_grad()
def test_the_dead_zone() -> None:
    """Queries that turn away from running sums: none of their sites reads them."""
    model = random_own({"name": "block_attnres", "blocks": 2}, LAYERS)
    result = Routes(shown=4).run(lab_of(model, TEXT))
    running = np.array(result.curve("running").values, dtype=float)
    # runs of four sites: none stands before the first, and complete ones are no running sums
    assert np.isnan(running[[0, 4]]).all()
    assert not np.isnan(running[[1, 2, 3, 5, 6, 7]]).any()
    found = result.number("dead_zone").value
    low = running[[1, 2, 3, 5, 6, 7]] < 0.05
    assert found == (len(low) if low.all() else int(np.argmin(low)))
    wide = Routes(shown=4, dead=2.0).run(lab_of(model, TEXT))
    assert wide.number("dead_zone").value == 6
    with pytest.raises(KeyError):
        routes("prenorm").number("dead_zone")


@torch.no_grad()
def test_streams() -> None:
    model = random_own("mhc", LAYERS)
    lab = lab_of(model, TEXT)
    result = Streams().run(lab)
    ranks = {"rank": [], "rank_centred": []}
    products: dict[int, torch.Tensor] = {}
    cosines = []
    for batch in TEXT.batches:
        session = OwnSubject(model, "test").session(batch)
        trace = session.trace()
        mixes = [mix.double() for _, route in trace.routes for mix in route.mixes()]
        product = mixes[0]
        products.setdefault(0, product)
        for mix in mixes[1:]:
            product = product @ mix
        ranks["rank"].append(effective_rank(product).mean())
        ranks["rank_centred"].append(effective_rank(product, without_mean=True).mean())
        z = trace.depth_states[-1].unflatten(-1, (4, -1))
        one = torch.nn.functional.cosine_similarity(z[..., 0, :], z[..., 1, :], dim=-1)
        cosines.append(one.mean())
    for name, expected in ranks.items():
        got = result.curve(name).values[-1]
        assert got == pytest.approx(torch.stack(expected).mean().item(), rel=1e-9)
    last = np.array(result.matrix("cosines").values, dtype=float)
    assert last[0, 1] == pytest.approx(torch.stack(cosines).mean().item(), rel=1e-9)
    assert np.diagonal(last) == pytest.approx(1)
    assert sum(one for one in result.curve("spectrum").values if one) == pytest.approx(1)
    assert result.number("static_rank").value <= 4
    assert math.isfinite(result.curve("error").values[0] or 0)


def test_one_stream_has_none() -> None:
    subject = OwnSubject(random_own("prenorm", 2), "test")
    assert Streams().refusal(subject) == "the model has one residual stream"
    assert Streams().refusal(OwnSubject(random_own("hc", 2), "test")) is None
