"""Text under the tokenizer of a Hugging Face model."""

from typing import Any

import tokenizers

from depthbench.data.tokenizer import KNOWN_DOCUMENT_TOKENS, FileTokenizer
from depthbench.errors import DepthbenchError
from depthbench.probes.text import Text, TextConfig, text_of_files

WORD = "depth"


def text_for(
    asked: TextConfig,
    tokenizer: Any,
    source: str,
    longest: int | None,
    words: int,
) -> Text:
    """Documents for a model of ``longest`` positions that knows ``words`` tokens.

    Raises `DepthbenchError` for rows that are too long, and for tokens that the model has not.
    """
    if longest is not None and asked.length > longest:
        raise DepthbenchError(
            f"length = {asked.length}: {source} has {longest} positions. Ask for at most as many "
            f"with --length {longest}"
        )
    start = start_token(tokenizer, asked.start, source)
    text = text_of_files(asked, coder_of(tokenizer, source), start)
    check_words(text, words, source)
    return text


def check_words(text: Text, words: int, source: str) -> None:
    """Raise `DepthbenchError` for a token that a model of ``words`` tokens does not know."""
    largest = max(int(batch.tokens.max()) for batch in text.batches)
    if largest >= words:
        raise DepthbenchError(
            f"the tokenizer of {source} gives token {largest}, but its embedding has {words} rows: "
            "they do not belong together"
        )


def coder_of(tokenizer: Any, source: str) -> FileTokenizer:
    """The tokenizer as text is coded with here: special tokens in a text are plain text.

    Raises `DepthbenchError` for one that is not of the library tokenizers.
    """
    if not tokenizer.is_fast:
        raise DepthbenchError(
            f"{source}: its tokenizer {type(tokenizer).__name__} is not of the library tokenizers. "
            "Save a tokenizer.json beside the model"
        )
    inner = tokenizers.Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    inner.no_truncation()
    inner.no_padding()
    inner.encode_special_tokens = True
    size = inner.get_vocab_size()
    return FileTokenizer.of(inner, source, f"that of {source}: {size} tokens")


def start_token(tokenizer: Any, policy: str, source: str) -> int | None:
    """The token in front of every row; None for none.

    ``model``: what the tokenizer itself puts in front. ``always``: that, its token for the
    beginning of a text, or a known one. Raises `DepthbenchError` where there is none.
    """
    if policy == "never":
        return None
    bare = tokenizer(WORD, add_special_tokens=False)["input_ids"]
    full = tokenizer(WORD)["input_ids"]
    places = [n for n in range(len(full)) if full[n : n + len(bare)] == bare]
    front = full[: places[0]] if places else []
    if len(front) > 1:
        raise DepthbenchError(
            f"{source}: its tokenizer puts {len(front)} tokens in front of a text. Use --start "
            "always for one, or never"
        )
    if front or policy == "model":
        return front[0] if front else None
    if tokenizer.bos_token_id is not None:
        return tokenizer.bos_token_id
    vocabulary = tokenizer.get_vocab()
    known = [vocabulary[token] for token in KNOWN_DOCUMENT_TOKENS if token in vocabulary]
    if not known:
        raise DepthbenchError(f"start = always: the tokenizer of {source} has no token for it")
    return known[0]
