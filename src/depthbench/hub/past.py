"""What Hugging Face's generation hands from step to step: one of our caches."""

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Int
from torch import Tensor

from depthbench.errors import DepthbenchError
from depthbench.nn.generate import AHEAD
from depthbench.nn.model import Model

if TYPE_CHECKING:
    from depthbench.nn.cache import Cache

MASK = "attention_mask"
MEND_MASK = "Pad on one side alone: tokenizer.padding_side = 'left' to generate"


class PastTokens:
    """The tokens that a model has seen; it grows with them."""

    is_compileable = False
    is_linear = (False,)

    def __init__(self, model: Model, batch: int, length: int, padding: Tensor | None) -> None:
        """Room for ``length`` tokens of ``batch`` sequences, and some more."""
        self.model = model
        self.held: Cache = model.cache(batch, length + AHEAD, padding=padding)

    def make_room(self, more: int) -> None:
        """For ``more`` tokens."""
        needed, capacity = self.held.length + more, self.held.room.capacity
        if needed > capacity:
            self.model.grow(self.held, max(needed, 2 * capacity))

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Positions that are filled, padding included."""
        return self.held.length

    def reorder_cache(self, beam_idx: Int[Tensor, "b"]) -> None:
        """Sequence ``n`` goes on from what sequence ``beam_idx[n]`` has seen."""
        for memory in self.held.memories():
            for tensor in memory.tensors():
                tensor.copy_(tensor.index_select(0, beam_idx.to(tensor.device)))
        if self.held.padding is not None:
            self.held.padding = self.held.padding[beam_idx.to(self.held.padding.device)]


def padding_of(
    mask: Tensor | None, tokens: Int[Tensor, "b t"], past: PastTokens | None, *, goes_on: bool
) -> Int[Tensor, "b"] | None:
    """Tokens on the left of each sequence that are no text, from an attention mask.

    None where there are none. Padding on the right needs nothing, for no text looks at it, unless
    the sequences go on (``goes_on``). Raises `DepthbenchError` for masks that say more.
    """
    if mask is None:
        return None if past is None else past.held.padding
    length = tokens.shape[1] + (0 if past is None else past.held.length)
    if mask.shape != (len(tokens), length):
        raise DepthbenchError(
            f"{MASK} has shape {tuple(mask.shape)}, but there are {len(tokens)} sequences of "
            f"{length} tokens. Give one number for each token, 1 for text and 0 for padding"
        )
    text = mask != 0
    first, behind = text.int().argmax(1), text.flip(1).int().argmax(1)
    counted = text.sum(1)
    if bool((counted == 0).any()):
        raise DepthbenchError(f"{MASK}: a sequence has no text. Leave it out")
    if bool((counted != length - behind - first).any()):
        raise DepthbenchError(
            f"{MASK} has holes between tokens of text; one that is left out is guessed from the "
            f"padding token. {MEND_MASK}, and give the mask"
        )
    if goes_on and bool((behind > 0).any()):
        raise DepthbenchError(f"{MASK}: new tokens would stand behind padding. {MEND_MASK}")
    padding = first if bool((first > 0).any()) else None
    if past is not None:
        _check_same(padding, past.held.padding)
    return padding


def _check_same(padding: Any, held: Any) -> None:
    same = padding is held if padding is None or held is None else torch.equal(padding, held)
    if not same:
        raise DepthbenchError(
            f"{MASK} names other padding than the tokens in the cache had. Start without a cache"
        )
