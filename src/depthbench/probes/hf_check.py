"""Whether a Hugging Face model is read as it is: a few random rows, its own logits against ours."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from depthbench.errors import DepthbenchError
from depthbench.probes.batch import Batch
from depthbench.probes.hf_layout import NAMING, Finish, Layout, finish_of, through
from depthbench.probes.hf_record import own_forward, recorded, silenced, state_of, tensors_in
from depthbench.probes.program import plain
from depthbench.probes.subject import BRANCHES, Call, Session

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LENGTHS = (12, 7, 10)
"""Tokens of the rows."""
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}
"""Largest difference over the largest number."""


def sample(words: int, longest: int | None, device: torch.device, left: bool = False) -> Batch:
    """Rows of random tokens of the first ``words``, padded on one side."""
    drawn = torch.Generator().manual_seed(0)
    lengths = [min(length, longest or length) for length in LENGTHS]
    rows = [torch.randint(words, (length,), generator=drawn).tolist() for length in lengths]
    return Batch.of_rows(rows, left=left).to(device)


def difference(a: Tensor, b: Tensor) -> float:
    """Largest difference over the largest number of ``b``."""
    return float((a - b).abs().max() / b.abs().max().clamp(min=torch.finfo(b.dtype).tiny))


def tolerance(x: Tensor) -> float:
    """How far numbers of the precision of ``x`` may be apart."""
    return TOLERANCE.get(x.dtype, 1e-5)


@torch.no_grad()
def read_finish(model: "PreTrainedModel", layout: Layout, batch: Batch) -> Finish:
    """What the model does behind its head.

    Raises `DepthbenchError` where the parts, called one after another, do not give its logits.
    """
    record, own = recorded(model, layout.blocks, batch), own_forward(model, batch)
    state = record.first
    for block, passed in zip(layout.blocks, record.passed, strict=True):
        state = state_of(passed.call(block, state), state)
    head = through(layout.ending, through(layout.before, state))
    if head.shape != own.shape:
        raise _not_read(model, layout, f"{tuple(head.shape)} logits, not its own")
    finish = finish_of(model.config, head, own)
    _same(model, layout, finish(head), own, "logits other than its own")
    return finish


@torch.no_grad()
def check_session(model: "PreTrainedModel", layout: Layout, session: Session[Tensor]) -> Tensor:
    """Its logits; raises `DepthbenchError` where one program or two do not give the model's own."""
    own = session.own_logits()
    for copies in (1, 2):
        state = session.join([session.open()] * copies, copies)
        for call in plain(session.layers):
            state = session.run(call, state, copies)
        for number in range(copies):
            found = session.logits(session.readout(session.take(state, number, number + 1, copies)))
            valid = session.batch.valid
            _same(model, layout, found[valid], own[valid], f"other logits with {copies} programs")
    return own


@torch.no_grad()
def check_causal(model: "PreTrainedModel", batch: Batch) -> None:
    """Raise `DepthbenchError` for a model that is no decoder, or whose tokens see later ones."""
    kind = type(model).__name__
    if model.config.is_encoder_decoder:
        raise DepthbenchError(
            f"{kind} is an encoder with a decoder. Probes read decoder-only models"
        )
    other = batch.tokens.clone()
    other[:, -1] = other[:, 0]
    changed = Batch(other, batch.valid, batch.sizes, batch.documents)
    own, again = (own_forward(model, one)[0, :-1] for one in (batch, changed))
    if difference(again, own) > tolerance(own):
        raise DepthbenchError(
            f"{kind}: its logits depend on later tokens, so it is no causal decoder. Probes read "
            "decoder-only models"
        )


@torch.no_grad()
def check_blocks(model: "PreTrainedModel", layout: Layout, batch: Batch) -> None:
    """Raise `DepthbenchError` for blocks that get more than one state from those before them."""
    kind = type(model).__name__
    record = recorded(model, layout.blocks, batch)
    if record.first.shape[:2] != batch.tokens.shape or record.first.ndim not in (3, 4):
        raise DepthbenchError(
            f"{kind}: block 0 of {layout.names.blocks} is passed a state of shape "
            f"{tuple(record.first.shape)}. Probes read (batch, time, width) and (batch, time, "
            "stream, width)"
        )
    moved = recorded(model, layout.blocks, batch, nudge=lambda state: state.flip(-1) + 1)
    for number, pair in enumerate(zip(record.passed, moved.passed, strict=True)):
        first, second = (tensors_in((passed.args, passed.kwargs)) for passed in pair)
        if len(first) != len(second) or not all(map(torch.equal, first, second)):
            raise DepthbenchError(
                f"{kind}: earlier blocks pass block {number} more than their state, so programs "
                "would mix what belongs to different ones. This model is not read"
            )


@torch.no_grad()
def whole_blocks(layout: Layout, session: Session[Tensor]) -> str | None:
    """Why attention and feed-forward cannot be told apart; None where they can.

    With both silent a block must pass its state on, or it has more than them: a norm behind the
    residual sum, say. One that mixes streams goes on mixing them.
    """
    state = session.open()
    for number, block in enumerate(layout.blocks):
        attention, feedforward = layout.attention(number), layout.feedforward(number)
        kind = type(block).__name__
        for word, found in (("attention", attention), ("feed-forward", feedforward)):
            if not found:
                inside = ", ".join(type(one).__name__ for one in block.children())
                return f"block {number} ({kind}) has no module that is {word} among {inside}"
        with silenced([*attention, *feedforward]):
            quiet = session.run(Call(number, number), state, 1)
        if state.ndim == 3 and difference(quiet, state) > tolerance(state):
            return (
                f"block {number} ({kind}) changes its state even with attention and feed-forward "
                "silent"
            )
        state = session.run(Call(number, number), state, 1)
    return None


@torch.no_grad()
def runs_in_turn(layout: Layout, session: Session[Tensor]) -> bool:
    """Whether attention alone and then feed-forward alone are the block, for all of them.

    Not where both read the same state, and not where a block mixes streams: it would twice.
    """
    state = session.open()
    for number in range(len(layout.blocks)):
        apart = state
        for part in BRANCHES:
            apart = session.run(Call(number, number, part), apart, 1)
        state = session.run(Call(number, number), state, 1)
        if difference(apart, state) > tolerance(state):
            return False
    return True


def _same(model: "PreTrainedModel", layout: Layout, found: Tensor, own: Tensor, what: str) -> None:
    apart = difference(found, own)
    if not apart <= tolerance(own):
        raise _not_read(model, layout, f"{what}, by up to {apart:.2g} of the largest")


def _not_read(model: "PreTrainedModel", layout: Layout, what: str) -> DepthbenchError:
    names = layout.names
    return DepthbenchError(
        f"{type(model).__name__}: its blocks {names.blocks}, final norm {names.norm} and head "
        f"{names.head}, called one after another, give {what}. Name the right parts, such as "
        f"{NAMING}, or this model does more between them than probes can follow"
    )
