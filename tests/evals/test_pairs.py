"""Loss on answers against one forward for every token; the boundary between prompt and answer."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from depthbench.data.sources import Document
from depthbench.data.tokenizer import train_bpe
from depthbench.errors import DepthbenchError
from depthbench.evals.pairs import Pair, PairsConfig, measure_pairs, tokens_of
from tests.evals.small import bytes_model, loss_at, machinery_of, reader_of

PAIRS = [("What is deep?", " A model."), ("2+2=", "4"), ("", "naïve"), ("abc ", "d\u2028e")]


def written(folder: Path, pairs: Any = PAIRS, name: str = "set.jsonl") -> str:
    lines = [json.dumps({"prompt": p, "answer": a}, ensure_ascii=False) for p, a in pairs]
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(folder / name)


def test_only_answers_count(tmp_path: Path) -> None:
    model = bytes_model()
    config = PairsConfig(files=(written(tmp_path),))
    [found] = measure_pairs(machinery_of(model, batch=3), reader_of(), config)
    sums = []
    for prompt, answer in PAIRS:
        row = [256, *prompt.encode(), *answer.encode()]
        first = 1 + len(prompt.encode())
        sums.append(sum(loss_at(model, row, n, range(4)) for n in range(first, len(row))))
    size = sum(len(answer.encode()) for _, answer in PAIRS)
    assert found.counts["tokens"] == found.counts["bytes"] == size
    values = {one.name: one.value for one in found.numbers}
    assert values["nats_per_token"] == pytest.approx(sum(sums) / size, rel=1e-12)
    assert values["bits_per_byte"] == pytest.approx(sum(sums) / math.log(2) / size, rel=1e-12)
    assert values["nats_per_answer"] == pytest.approx(sum(sums) / 4, rel=1e-12)
    assert values["greedy"] == 0.0
    assert found.policy["join"] == "apart"


def test_files_apart_and_together(tmp_path: Path) -> None:
    files = (written(tmp_path, PAIRS[:1], "a.jsonl"), written(tmp_path, PAIRS[1:], "b.jsonl"))
    one, two, both = measure_pairs(
        machinery_of(bytes_model()), reader_of(), PairsConfig(files=files)
    )
    assert [one.name, two.name, both.name] == ["a", "b", "all pairs"]
    nats = [found.counts["tokens"] * found.numbers[0].value for found in (one, two)]  # pyright: ignore
    assert both.numbers[0].value == pytest.approx(sum(nats) / both.counts["tokens"], rel=1e-12)


def test_where_the_answer_begins() -> None:
    """A merge across the boundary: apart it is cut there, together its token is the answer's."""
    text = Document("text", b"abcd" * 200)
    coder = train_bpe([[text]], 258)
    merged = coder.encode(Document("pair", b"ab")).ids.tolist()
    assert len(merged) == 1
    apart = tokens_of(Pair("here", "a", "b"), "apart", coder)
    together = tokens_of(Pair("here", "a", "b"), "together", coder)
    single = [coder.encode(Document("letter", letter)).ids.tolist() for letter in (b"a", b"b")]
    assert apart == (single[0], single[1], 1)
    assert together == ([], merged, 2)


def test_a_long_prompt_loses_its_beginning(tmp_path: Path) -> None:
    model = bytes_model()
    config = PairsConfig(files=(written(tmp_path, [("abcdefgh", "xy")]),), length=6)
    [found] = measure_pairs(machinery_of(model), reader_of(), config)
    row = [256, *b"fghxy"]
    hand = loss_at(model, row, 4, range(4)) + loss_at(model, row, 5, range(4))
    assert found.numbers[0].value == pytest.approx(hand / 2, rel=1e-12)
    assert found.counts["shortened"] == 1
    assert found.notes == ("1 prompts are longer than a row: their beginning is left out",)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nonsense", "line 1 is no valid JSON"),
        ("[1]", "line 1 is no JSON object"),
        ('{"question": "a", "answer": "b"}', "line 1 has no text 'prompt'. It has question"),
        ('{"prompt": "a", "answer": ""}', "line 1: the answer is empty"),
        ("", "holds no pair"),
    ],
)
def test_bad_lines(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "bad.jsonl").write_text(line + "\n", encoding="utf-8")
    config = PairsConfig(files=(str(tmp_path / "bad.jsonl"),))
    with pytest.raises(DepthbenchError, match=words):
        list(measure_pairs(machinery_of(bytes_model()), reader_of(), config))


def test_an_answer_with_nothing_in_front(tmp_path: Path) -> None:
    config = PairsConfig(files=(written(tmp_path, [("", "b")]),), bos="never")
    with pytest.raises(DepthbenchError, match="bos = never"):
        list(measure_pairs(machinery_of(bytes_model()), reader_of(), config))
    config = PairsConfig(files=(written(tmp_path, [("a", "bcd")]),), length=3)
    with pytest.raises(DepthbenchError, match="the answer has 3 tokens, but a row has 3"):
        list(measure_pairs(machinery_of(bytes_model()), reader_of(), config))
