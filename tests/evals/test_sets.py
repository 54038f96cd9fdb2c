"""Published sets from local copies with their columns, against one forward for every token."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from depthbench.errors import DepthbenchError
from depthbench.evals.published import PUBLISHED
from depthbench.evals.sets import SetsConfig, Wanted, measure_sets, pairs_of, read_set
from tests.evals.small import bytes_model, loss_at, machinery_of, reader_of

COPIES: dict[str, tuple[list[dict[str, Any]], list[tuple[str, str]]]] = {
    "humaneval": (
        [
            {
                "task_id": "HumanEval/0",
                "prompt": "def f(x):\n",
                "canonical_solution": "    return x\n",
                "test": "check",
                "entry_point": "f",
            }
        ],
        [("def f(x):\n", "    return x\n")],
    ),
    "mbpp": (
        [{"task_id": 2, "text": "Add.", "code": "a+b\r\n", "test_list": ["t(1)", "t(2)"]}],
        [('"""\nAdd.\nt(1)\nt(2)\n"""\n', "a+b\r\n")],
    ),
    "gsm8k": (
        [
            {"question": "1+1?", "answer": "2 {{ x }}\n#### 2"},
            {"question": "naïve <b>?", "answer": "3"},
        ],
        [
            ("Question: 1+1?\nAnswer:", " 2 {{ x }}\n#### 2"),
            ("Question: naïve <b>?\nAnswer:", " 3"),
        ],
    ),
    "math": (
        [{"problem": "$1$", "solution": r"\boxed{1}", "level": "Level 1", "type": "Algebra"}],
        [("Problem:\n$1$\n\nSolution:", r" \boxed{1}")],
    ),
    "math500": (
        [{"problem": "$2$", "solution": "two", "answer": "2", "subject": "Algebra", "level": 1}],
        [("Problem:\n$2$\n\nSolution:", " two")],
    ),
    "arc_challenge": (
        [
            {
                "id": "M1",
                "question": "Hot?",
                "choices": {"text": ["ice", "sun"], "label": ["1", "2"]},
                "answerKey": "2",
            }
        ],
        [("Question: Hot?\nAnswer:", " sun")],
    ),
    "sciq": (
        [{"question": "Who?", "support": " Text.", "correct_answer": "me", "distractor1": "you"}],
        [("Text.\nQuestion: Who?\nAnswer:", " me")],
    ),
    "mmlu_stem": (
        [
            {"question": "Art? ", "subject": "philosophy", "choices": ["a", "b"], "answer": 0},
            {"question": "Two? ", "subject": "anatomy", "choices": ["a", "b"], "answer": 1},
        ],
        [("Question: Two?\nAnswer:", " b")],
    ),
}


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each set, with a parquet file of its columns."""
    root = tmp_path_factory.mktemp("sets")
    for name, (rows, _) in COPIES.items():
        (root / name).mkdir()
        pq.write_table(pa.Table.from_pylist(rows), root / name / "test.parquet")
    return root


def test_every_set_has_a_copy_here() -> None:
    assert COPIES.keys() == PUBLISHED.keys()
    assert {one.about for one in PUBLISHED.values()} == {"code", "STEM", "mathematics"}


@pytest.mark.parametrize("name", PUBLISHED)
def test_records_become_prompts_and_answers(name: str, copies: Path) -> None:
    wanted = Wanted.of(f"{name}={copies / name}")
    records = read_set(wanted)
    pairs = pairs_of(wanted, records.rows)
    assert [(one.prompt, one.answer) for one in pairs] == COPIES[name][1]
    assert (records.split, records.revision) == ("test", None)


@pytest.mark.parametrize("names", [("gsm8k", "arc_challenge")])
def test_losses_are_those_of_the_answers(names: tuple[str, ...], copies: Path) -> None:
    model = bytes_model()
    config = SetsConfig(sets=tuple(f"{name}={copies / name}" for name in names))
    found = list(measure_sets(machinery_of(model), reader_of(), config))
    assert [(one.kind, one.name) for one in found] == [("pairs", name) for name in names]
    for one in found:
        hand, size = 0.0, 0
        for prompt, answer in COPIES[one.name][1]:
            row = [256, *prompt.encode(), *answer.encode()]
            first = 1 + len(prompt.encode())
            hand += sum(loss_at(model, row, place, range(4)) for place in range(first, len(row)))
            size += len(answer.encode())
        assert one.counts["bytes"] == size
        nats = one.number("nats_per_token")
        assert nats is not None
        assert nats.value == pytest.approx(hand / size, rel=1e-12)
        assert one.policy["hub"] == PUBLISHED[one.name].hub
        assert one.policy["revision"] is None
        assert one.policy["place"] == str(copies / one.name)
        assert len(one.policy["text_hash"]) == len(one.data_hash) == 12


def test_the_first_questions_alone_and_a_single_file(copies: Path, tmp_path: Path) -> None:
    """A split of another name counts where it is the only one; the hash is of what was read."""
    rows, pairs = COPIES["gsm8k"]
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    config = SetsConfig(sets=(f"gsm8k={tmp_path / 'own.jsonl'}",), limit=1)
    [found] = measure_sets(machinery_of(bytes_model()), reader_of(), config)
    assert found.counts["pairs"] == 1
    assert found.counts["bytes"] == len(pairs[0][1])
    assert found.policy["split"] == "train"
    config = SetsConfig(sets=(f"gsm8k={copies / 'gsm8k'}",))
    [both] = measure_sets(machinery_of(bytes_model()), reader_of(), config)
    assert both.policy["text_hash"] != found.policy["text_hash"]


def test_a_copy_of_the_repository_is_read_by_its_subsets(tmp_path: Path) -> None:
    """As ``git clone`` of a data set leaves it: a README that names the files of each subset."""
    named = []
    for number, subset in enumerate(PUBLISHED["math"].subsets):
        (tmp_path / subset).mkdir()
        row = {"problem": f"{number}?", "solution": f"{number}"}
        pq.write_table(pa.Table.from_pylist([row]), tmp_path / subset / "test-00000.parquet")
        named.append(
            f"- config_name: {subset}\n  data_files:\n  - split: test\n    path: {subset}/test-*"
        )
    (tmp_path / "README.md").write_text(
        "---\nconfigs:\n" + "\n".join(named) + "\n---\n", encoding="utf-8"
    )
    wanted = Wanted.of(f"math={tmp_path}")
    answers = [one.answer for one in pairs_of(wanted, read_set(wanted).rows)]
    assert answers == [f" {number}" for number in range(7)]
    with pytest.raises(DepthbenchError, match=r"the subsets algebra, .* from one alone"):
        read_set(Wanted.of(f"sciq={tmp_path}"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gsm9k", "unknown set 'gsm9k', did you mean 'gsm8k'"),
        ("gsm8k@main=folder", "write NAME, NAME@REVISION, or NAME=FOLDER"),
        ("gsm8k=", "write NAME, NAME@REVISION, or NAME=FOLDER"),
        ("gsm8k=nowhere", "no file or folder nowhere"),
        ("gsm8k={copies}/sciq", "record 1 has no 'answer'.* It has question, support"),
        ("humaneval={copies}/gsm8k", "the set's columns are prompt, canonical_solution"),
        ("mmlu_stem={broken}", "cannot be written as prompt and answer"),
        ("sciq={empty}", "record 1: the answer is empty"),
    ],
)
def test_what_is_no_set(text: str, words: str, copies: Path, tmp_path: Path) -> None:
    broken, empty = tmp_path / "broken.jsonl", tmp_path / "empty.jsonl"
    row = {"question": "?", "subject": "anatomy", "choices": ["a"], "answer": 3}
    broken.write_text(json.dumps(row), encoding="utf-8")
    empty.write_text(json.dumps({"question": "?", "support": "", "correct_answer": ""}))
    config = SetsConfig(sets=(text.format(copies=copies, broken=broken, empty=empty),))
    with pytest.raises(DepthbenchError, match=words):
        list(measure_sets(machinery_of(bytes_model()), reader_of(), config))


def test_without_the_hub_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    with pytest.raises(DepthbenchError) as caught:
        read_set(Wanted.of("gsm8k"))
    said = str(caught.value)
    assert said.startswith("set = 'gsm8k': the Hugging Face Hub could not be reached for openai/")
    assert "--set gsm8k=FOLDER" in said
    assert "columns question, answer" in said
    assert "--pairs FILE.jsonl" in said
    assert "\n" not in said
