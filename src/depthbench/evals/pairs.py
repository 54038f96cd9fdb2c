"""Loss on answers to prompts: only the answer's tokens count."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from depthbench.config import Frozen
from depthbench.data.sources import Document
from depthbench.data.tokenizer import Tokenizer
from depthbench.errors import DepthbenchError, nearest
from depthbench.evals.domains import (
    bos_of,
    check_length,
    check_vocabulary,
    check_words,
    notes_of,
    policy_of,
)
from depthbench.evals.measure import Machinery, Rows, losses, measure
from depthbench.evals.result import Measured
from depthbench.evals.score import Scores
from depthbench.evals.windows import Bos, Window, WindowConfig
from depthbench.files import user_path
from depthbench.probes.bootstrap import estimated
from depthbench.probes.reader import Reader
from depthbench.probes.result import Number


class JoinConfig(Frozen):
    """How prompt and answer become one row."""

    join: Literal["apart", "together"] = "apart"
    """``apart``: prompt and answer are tokenised each alone, as a model sees them that answers.
    ``together``: as one text; the answer begins with the first token that reaches beyond the
    prompt, so a token that lies on both counts to it whole."""
    bos: Bos = "document"
    """As in `WindowConfig`; a pair is one document and one row."""
    length: int | None = Field(default=None, ge=2)
    """Tokens of a row at most; None = as many as the model reads. A longer prompt loses its
    beginning."""


class PairsConfig(JoinConfig):
    """Which files, and how their pairs become rows."""

    files: tuple[str, ...] = Field(min_length=1)
    """JSONL files, one pair a line."""
    prompt: str = Field(default="prompt", min_length=1)
    """Key of the prompt."""
    answer: str = Field(default="answer", min_length=1)
    """Key of the answer."""


class Pair(NamedTuple):
    """A question with its answer."""

    where: str
    """File and line, or set and row."""
    prompt: str
    answer: str


def measure_pairs(machinery: Machinery, reader: Reader, config: PairsConfig) -> Iterator[Measured]:
    """Every file under every program, and all of them together where there are several.

    Raises `DepthbenchError` for a line that is no pair, and for an answer that does not fit.
    """
    found: list[Rows] = []
    for name in config.files:
        pairs = read_pairs(name, config.prompt, config.answer)
        policy = {"files": [name]}
        found.append(rows_of_pairs(Path(name).stem, pairs, config, reader, policy))
    if len(found) > 1:
        found.append(_together(found))
    for rows in found:
        yield from measure(machinery, rows, answer_losses)


def read_pairs(given: str, prompt: str, answer: str) -> list[Pair]:
    """Raises `DepthbenchError` with the line for what is no pair."""
    path = user_path(given)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise DepthbenchError(
            f"pairs: {given} cannot be read: {reason}. Name a .jsonl file with --pairs"
        ) from None
    # splitlines would also cut at U+2028 within a string
    lines = enumerate(text.split("\n"), start=1)
    found = [_pair(given, number, line, (prompt, answer)) for number, line in lines if line.strip()]
    if not found:
        raise DepthbenchError(f"pairs: {given} holds no pair. Write one JSON object a line")
    return found


def _pair(given: str, number: int, line: str, fields: tuple[str, str]) -> Pair:
    where = f"pairs: {given} line {number}"
    try:
        record = json.loads(line)
    except ValueError as error:
        raise DepthbenchError(f"{where} is no valid JSON ({error}). Mend that line") from None
    if not isinstance(record, dict):
        raise DepthbenchError(f"{where} is no JSON object. Mend that line")
    values: list[str] = []
    for option, name in zip(("--prompt-field", "--answer-field"), fields, strict=True):
        if name in record and not isinstance(record[name], str):
            raise DepthbenchError(f"{where}: '{name}' = {record[name]!r:.40} is no text. Quote it")
        if name not in record:
            raise DepthbenchError(
                f"{where} has no text '{name}'{nearest(name, record) or '.'} It has "
                f"{', '.join(record) or 'nothing'}: name the field with {option}"
            )
        values.append(record[name])
    if not values[1]:
        raise DepthbenchError(f"{where}: the answer is empty. Remove that line")
    return Pair(f"{given} line {number}", *values)


def rows_of_pairs(
    name: str, pairs: Sequence[Pair], config: JoinConfig, reader: Reader, policy: dict[str, Any]
) -> Rows:
    """One row a pair, whose answer alone is scored; ``policy`` says where the pairs are from.

    Raises `DepthbenchError` for an answer that does not fit.
    """
    check_vocabulary(reader)
    if config.length is not None:
        check_length(reader, config.length)
    bos = bos_of(reader, WindowConfig(bos=config.bos))
    longest = config.length or reader.longest
    windows: list[Window] = []
    shortened, exact = 0, True
    for number, pair in enumerate(pairs):
        prompt, answer, size = tokens_of(pair, config.join, reader.coder)
        front = [] if bos is None else [bos]
        if not front and not prompt:
            raise DepthbenchError(
                f"{pair.where}: the prompt is empty and bos = never, so nothing stands in front of "
                "the answer. Use --bos document"
            )
        room = math.inf if longest is None else longest - len(front) - len(answer)
        if room < (not front):
            raise DepthbenchError(
                f"{pair.where}: the answer has {len(answer)} tokens, but a row has {longest}. "
                "Shorten it, or remove that line"
            )
        if len(prompt) > room:
            shortened += 1
            prompt = prompt[len(prompt) - int(room) :]
        exact = exact and size is not None
        ids = (*front, *prompt, *answer)
        windows.append(Window(ids, len(ids) - len(answer), number, size or 0))
    check_words(windows, reader)
    notes = [] if exact else ["the tokenizer does not keep text byte for byte: no bits per byte"]
    if shortened:
        notes.append(f"{shortened} prompts are longer than a row: their beginning is left out")
    policy = config.resolved() | policy | {"length": longest, "bos_token": bos}
    policy |= policy_of(reader)
    counts = {"pairs": len(windows), "shortened": shortened}
    notes += notes_of(reader)
    return Rows("pairs", name, windows, policy, exact, counts, tuple(notes), reader.known)


def tokens_of(pair: Pair, join: str, coder: Tokenizer) -> tuple[list[int], list[int], int | None]:
    """Tokens of the prompt, of the answer, and the answer's bytes; None where they are not known.

    Raises `DepthbenchError` where ``together`` cannot tell where the answer begins.
    """
    before, after, where = pair.prompt.encode(), pair.answer.encode(), pair.where
    if join == "apart":
        prompt, _ = _coded(before, coder, where)
        answer, size = _coded(after, coder, where)
        return prompt, answer, None if size is None else sum(size)
    ids, sizes = _coded(before + after, coder, where)
    if sizes is None:
        raise DepthbenchError(
            f"{where}: the tokenizer does not keep text byte for byte, so where the answer begins "
            "among the tokens is not known. Use --join apart"
        )
    ends = np.cumsum(sizes)
    first = int(np.searchsorted(ends, len(before), side="right"))
    return ids[:first], ids[first:], sum(sizes[first:])


def _coded(data: bytes, coder: Tokenizer, where: str) -> tuple[list[int], list[int] | None]:
    if not data:
        return [], []
    document = Document(where, data)
    try:
        found = coder.encode(document)
    except DepthbenchError:
        return coder.inexact_ids(document).tolist(), None
    return found.ids.tolist(), found.sizes.tolist()


def answer_losses(rows: Rows, scores: Scores, program: int, seed: int) -> tuple[Number, ...]:
    """Of answers' tokens together, and of answers as wholes."""
    nats, greedy = scores.nats[program], scores.greedy[program].astype(np.float64)
    count = len(nats)
    means = [
        estimated(
            lambda weights, values=values: float(weights @ values) / count,
            float(values.mean()),
            count,
            seed,
            name=name,
            title=title,
            unit=unit,
        )
        for values, name, title, unit in (
            (nats, "nats_per_answer", "loss", "nats/answer"),
            (greedy, "greedy", "answers whose every token is the most likely", "share"),
        )
    ]
    return (*losses(rows, scores, program, seed), *means)


def _together(found: Sequence[Rows]) -> Rows:
    windows: list[Window] = []
    for one in found:
        for window in one.windows:
            windows.append(Window(window.ids, window.first, len(windows), window.bytes))
    exact = all(one.bytes_known for one in found)
    policy: dict[str, Any] = dict(found[0].policy)
    policy["files"] = [name for one in found for name in one.policy["files"]]
    counts = {name: sum(one.counts[name] for one in found) for name in ("pairs", "shortened")}
    notes = tuple(dict.fromkeys(note for one in found for note in one.notes))
    return Rows("pairs", "all pairs", windows, policy, exact, counts, notes, found[0].known)
