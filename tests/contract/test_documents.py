"""Documents of one sequence that are kept apart: each has the logits of running alone."""

import itertools

import pytest
import torch
from torch import Tensor

from depthbench.designs.base import DesignConfig
from depthbench.errors import DepthbenchError
from depthbench.marks import Marks
from depthbench.nn.backbones import BACKBONES
from depthbench.nn.kernels import plain_kernels
from depthbench.nn.model import Model
from tests.contract.test_decode import refusal_of
from tests.contract.variants import DEFAULTS, VARIANTS
from tests.oracles import GQA, config_of, random_model

DOCUMENT = 5
STARTS = ((0, 4, 5, 11), (3, 9))
"""Of each row; a row may begin within a document, and a document may be a single token."""
LENGTH = 14
PAIRS = [
    pytest.param(
        design,
        backbone,
        id=f"{label}-{backbone}",
        marks=[] if backbone == "dense" or label in DEFAULTS else [pytest.mark.slow],
    )
    for label, design in VARIANTS.items()
    for backbone in BACKBONES
]


def packed() -> Tensor:
    """Tokens (2, 14) without a document token but where documents start."""
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(6, 99, (2, LENGTH), generator=generator)
    for row, starts in enumerate(STARTS):
        tokens[row, list(starts)] = DOCUMENT
    return tokens


def spans(row: int) -> list[slice]:
    edges = sorted({0, *STARTS[row], LENGTH})
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


def model_of(design: DesignConfig, backbone: str) -> Model:
    config = config_of(design, GQA, name=backbone)
    config = config.model_copy(update={"marks": Marks(document=DOCUMENT, sentence_ends=(7, 8))})
    refusal = refusal_of(config)
    if refusal is not None:
        pytest.skip(refusal)
    return random_model(config)


@pytest.mark.parametrize(("design", "backbone"), PAIRS)
def test_each_document_as_if_it_ran_alone(design: DesignConfig, backbone: str) -> None:
    """Logits, and the gradients of their weighted sum, in float64."""
    model, tokens = model_of(design, backbone), packed()
    if design.name == "momentum" and design.resolved()["over"] == "segments":
        with pytest.raises(DepthbenchError, match="document_mask = true, but momentum with over"):
            model.keep_documents_apart()
        return
    model.keep_documents_apart()
    logits = model(tokens)
    weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(1)).to(logits)
    gradients = torch.autograd.grad((logits * weights).sum(), list(model.parameters()))
    model.documents_apart = False
    assert (model(tokens) - logits).abs().max() > 1e-6
    total = torch.zeros((), dtype=logits.dtype)
    for row in range(len(tokens)):
        for span in spans(row):
            alone = model(tokens[row : row + 1, span])
            torch.testing.assert_close(logits[row, span], alone[0], rtol=1e-10, atol=1e-10)
            total = total + (alone * weights[row, span]).sum()
    expected = torch.autograd.grad(total, list(model.parameters()))
    for (name, _), ours, theirs in zip(model.named_parameters(), gradients, expected, strict=True):
        scale = max(1.0, theirs.abs().max().item())
        assert (ours - theirs).abs().max() < 1e-10 * scale, name


@pytest.mark.parametrize("backbone", BACKBONES)
def test_padding_is_a_document_of_its_own(backbone: str) -> None:
    model, tokens = model_of(DEFAULTS["prenorm"], backbone), packed()
    model.keep_documents_apart()
    padding = torch.tensor([2, 5])
    with torch.no_grad():
        logits = model(tokens, padding=padding)
        for row, skipped in enumerate(padding.tolist()):
            alone = model(tokens[row : row + 1, skipped:])[0]
            torch.testing.assert_close(logits[row, skipped:], alone, rtol=1e-10, atol=1e-10)


def test_plain_kernels_and_recomputation_agree() -> None:
    model, tokens = model_of(DEFAULTS["moda"], "dense"), packed()
    model.keep_documents_apart()
    logits = model(tokens)
    with plain_kernels():
        torch.testing.assert_close(model(tokens), logits, rtol=1e-10, atol=1e-10)
    model.checkpointing = True
    torch.testing.assert_close(model(tokens), logits, rtol=0, atol=0)


def test_refused_without_a_document_token() -> None:
    model = random_model(config_of(DEFAULTS["prenorm"], GQA))
    with pytest.raises(DepthbenchError, match=r"document_mask = true, but marks\.document"):
        model.keep_documents_apart()
