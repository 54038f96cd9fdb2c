"""Mix-LN: the first ``⌊share · L⌋`` blocks are post-norm, the others pre-norm."""

import pytest
import torch
from torch import Tensor

from depthbench.designs.mix_ln import MixLN
from depthbench.errors import DepthbenchError
from depthbench.nn.model import Model
from tests.oracles import GQA, Oracle, assert_equation, config_of, random_model, tokens_of


def equation(o: Oracle, h: Tensor, post_norm_blocks: int) -> Tensor:
    for site in range(o.shape.sites):
        if site // 2 < post_norm_blocks:
            h = o.norm(site, h + o.branch(site, h))
        else:
            h = h + o.branch(site, o.norm(site, h))
    return h


@pytest.mark.parametrize(
    ("layers", "share", "blocks"), [(4, 0.25, 1), (3, 0.25, 0), (3, 0.5, 1), (3, 0.7, 2)]
)
def test_logits_and_gradients(layers: int, share: float, blocks: int) -> None:
    shape = GQA.model_copy(update={"layers": layers})
    config = config_of({"name": "mix_ln", "share": share}, shape)
    assert_equation(config, lambda o, h: equation(o, h, blocks))


@pytest.mark.parametrize(
    ("layers", "share", "blocks"),
    [
        (12, 0.25, 3),
        (24, 0.25, 6),
        (70, 0.25, 17),
        (3, 0.25, 0),
        (7, 0.0, 0),
        (7, 1.0, 7),
        (100, 0.07, 7),
        # in floating point 28.999… and 56.999…
        (100, 0.29, 29),
        (100, 0.57, 57),
    ],
)
def test_rounding_down(layers: int, share: float, blocks: int) -> None:
    shape = GQA.model_copy(update={"layers": layers})
    design = Model.on_meta(config_of({"name": "mix_ln", "share": share}, shape)).design
    assert isinstance(design, MixLN)
    assert design.post_norm_blocks == blocks


@pytest.mark.parametrize(("share", "same"), [(0.0, "prenorm"), (1.0, "postnorm")])
def test_all_or_nothing_is_another_design(share: float, same: str) -> None:
    tokens = tokens_of(GQA)
    mixed, other = (random_model(config_of(d)) for d in ({"name": "mix_ln", "share": share}, same))
    assert torch.equal(mixed(tokens), other(tokens))


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_share_is_a_part_of_the_blocks(share: float) -> None:
    with pytest.raises(DepthbenchError, match=r"share = "):
        config_of({"name": "mix_ln", "share": share})
