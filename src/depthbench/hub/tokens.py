"""Our tokenizers as those of transformers: the same ids, with the document token in front."""

from typing import TYPE_CHECKING

import tokenizers
from tokenizers import AddedToken, decoders, processors
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from depthbench.data.config import BYTE_VALUES
from depthbench.data.tokenizer import DOCUMENT, Tokenizer
from depthbench.probes.hf_quiet import quiet

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def hub_tokenizer(coder: Tokenizer) -> "PreTrainedTokenizerBase":
    """The tokenizer that a model was trained with, as transformers has them.

    The document token starts a text, as in training, and ends what is generated.
    """
    inner = byte_tokenizer() if coder.json is None else tokenizers.Tokenizer.from_str(coder.json)
    inner.no_truncation()
    inner.no_padding()
    name = inner.id_to_token(coder.document)
    if name is None:
        name = DOCUMENT
        inner.add_special_tokens([AddedToken(name, special=True)])
    inner.post_processor = processors.TemplateProcessing(
        single=f"{name} $A", pair=f"{name} $A {name} $B", special_tokens=[(name, coder.document)]
    )
    with quiet():
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast(
            tokenizer_object=inner,
            bos_token=name,
            eos_token=name,
            pad_token=name,
            padding_side="left",
            clean_up_tokenization_spaces=False,
            # transformers 4 gives types of tokens as well, which no model of ours takes
            model_input_names=["input_ids", "attention_mask"],
        )


def byte_tokenizer() -> tokenizers.Tokenizer:
    """One token a byte, with the byte's value as its id, and the document token behind them."""
    letters = letters_of_bytes()
    vocabulary = {letter: value for value, letter in enumerate(letters)}
    inner = tokenizers.Tokenizer(BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(DOCUMENT, special=True)])
    return inner


def letters_of_bytes() -> list[str]:
    """The letter that stands for each byte in the library's byte-level alphabet.

    A printable byte stands for itself; the others are the letters behind them, in order.
    """
    own = {value for value in range(BYTE_VALUES) if chr(value) in ByteLevel.alphabet()}
    others = iter(sorted(set(ByteLevel.alphabet()) - {chr(value) for value in own}))
    return [chr(value) if value in own else next(others) for value in range(BYTE_VALUES)]


def words_of(tokenizer: "PreTrainedTokenizerBase", *, added: bool = True) -> int:
    """One more than its largest id, with or without tokens that were added to its vocabulary."""
    vocabulary = tokenizer.get_vocab()
    if not added:
        extra = {token.content for token in tokenizer.added_tokens_decoder.values()}
        vocabulary = {name: one for name, one in vocabulary.items() if name not in extra}
    return max(vocabulary.values()) + 1
