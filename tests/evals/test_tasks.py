"""Tasks that need depth: their answers, the data they become, accuracy and its interval."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from depthbench.data.dataset import IGNORED
from depthbench.errors import DepthbenchError
from depthbench.evals.accuracy import measure_task, wilson
from depthbench.evals.episodes import episodes
from depthbench.evals.programs import Edit
from depthbench.evals.tasks import TASKS, TaskConfig, questions, task_of
from depthbench.probes.program import skip
from tests.evals.small import bytes_model, machinery_of

SMALL: dict[str, Any] = {"ks": (1, 3), "train": 40, "test": 12}


@pytest.mark.parametrize("name", TASKS)
def test_the_solver_agrees(name: Any) -> None:
    """On 300 questions of each k; and no question is longer than the task says."""
    task, draw = TASKS[name](13 if name in ("khop", "pointers") else 4), random.Random(1)
    for k in (1, 2, 5, 12):
        for _ in range(300):
            question, answer = task.make(k, draw)
            assert task.solve(question) == answer
            assert len(question) + len(answer) <= task.longest(k)


@pytest.mark.parametrize("name", ["khop", "pointers"])
def test_no_letter_is_a_good_guess(name: Any) -> None:
    """In a ring of six, two steps end at each of the five others equally often, never at home."""
    train, _ = questions(TaskConfig(task=name, ks=(2,), size=6, train=400, test=100), 2)
    assert all(question[-1] != answer for question, answer in train)
    counts = [sum(answer == letter for _, answer in train) for letter in "abcdef"]
    assert max(counts) < 1.4 * min(counts)


@pytest.mark.parametrize(
    ("name", "question", "answer"),
    [
        ("khop", "dbacbdca1a", "c"),
        ("khop", "dbacbdca2a", "a"),
        ("khop", "dbadbcca3b", "d"),
        ("pointers", "cabd2a", "b"),
        ("arithmetic", "3+5*2-4", "5"),
        ("arithmetic", "0-1", "6"),
        ("brackets", "([]{}[", "])"),
        ("brackets", "{((", "))}"),
    ],
)
def test_answers_by_hand(name: Any, question: str, answer: str) -> None:
    """``3+5*2-4`` from left to right modulo 7: 1, 2, 5."""
    assert task_of(TaskConfig(task=name)).solve(question) == answer


def test_no_question_is_trained_on_and_tested() -> None:
    config = TaskConfig(task="khop", ks=(2,), train=400, test=100)
    train, test = questions(config, 2)
    assert (len(train), len(test)) == (400, 100)
    assert len({question for question, _ in train + test}) == 500
    assert questions(config, 2) == (train, test)
    other = questions(config.model_copy(update={"seed": 1}), 2)
    assert other != (train, test)


def test_batches_are_whole_questions(tmp_path: Path) -> None:
    """Only what stands behind the mark is a target, in training and validation."""
    config = TaskConfig(task="brackets", ks=(2, 3), train=40, test=12)
    dataset = episodes(config, tmp_path)
    facts = dataset.manifest.episodes
    assert facts is not None
    inputs, targets = dataset.batch(0, 5, 32, facts.tokens - 1)
    task, seen = task_of(config), set()
    for row, aims in zip(inputs.tolist(), targets.tolist(), strict=True):
        assert row[0] == 256
        text = bytes([*row[1:], aims[-1]]).decode().lstrip(".")
        question, answer = text.split("=")
        assert task.solve(question) == answer
        assert aims[: -len(answer)] == [IGNORED] * (len(aims) - len(answer))
        assert bytes(aims[-len(answer) :]).decode() == answer
        seen.add(len(answer))
    assert seen == {2, 3}
    sets = dataset.validation(facts.tokens - 1, 12 * (facts.tokens - 1))
    assert list(sets) == ["k = 2", "k = 3"]
    assert len(sets["k = 3"].inputs) == 12
    assert len(set(map(tuple, sets["k = 3"].inputs.tolist()))) == 12
    assert int(sets["k = 3"].target_bytes.sum()) == 36
    assert int((sets["k = 3"].targets != IGNORED).sum()) == 36


def test_the_same_task_is_made_once(tmp_path: Path) -> None:
    config = TaskConfig(task="pointers", **SMALL)
    first = episodes(config, tmp_path)
    assert episodes(config, tmp_path).manifest == first.manifest
    with pytest.raises(DepthbenchError, match=r"Use train\.length=12"):
        first.batch(0, 0, 4, 16)


def test_wilson_by_hand() -> None:
    """Known values: 8 of 10 gives 0.490 to 0.943; none of 10 gives 0 to 0.278."""
    assert wilson(8, 10) == pytest.approx((0.490162, 0.943318), abs=1e-6)
    assert wilson(0, 10) == pytest.approx((0.0, 0.277533), abs=1e-6)
    assert wilson(10, 10) == pytest.approx((1 - 0.277533, 1.0), abs=1e-6)


@torch.no_grad()
def test_accuracy_is_that_of_greedy_text(tmp_path: Path) -> None:
    """Against answers written token by token, plain and without a block."""
    dataset = episodes(TaskConfig(task="arithmetic", ks=(1,), train=20, test=36), tmp_path)
    model = bytes_model()
    # a head that prefers digits, so that some answers are right
    for sign in b"0123456":
        model.head.weight[sign] *= 9  # pyright: ignore
    edits = [Edit("plain", tuple(skip(5, 4))), Edit("skip 1", skip(4, 1))]
    found = list(measure_task(machinery_of(model, edits), dataset))
    ids = dataset.tokens("validation")[0]
    for edit, one in zip(edits, found[:2], strict=True):
        right = 0
        for start in range(0, len(ids), dataset.manifest.episodes.tokens):  # pyright: ignore
            row = ids.window(start, dataset.manifest.episodes.tokens).tolist()  # pyright: ignore
            logits = model(torch.tensor([row[:-1]]), program=list(edit.blocks))
            right += int(logits[0, -1].argmax()) == row[-1]
        number = one.number("accuracy")
        assert number is not None
        assert right > 0
        assert number.value == right / 36
        assert (number.low, number.high) == wilson(right, 36)
    assert found[0].counts["k"] == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"task": "sorting"}, "task = 'sorting'"),
        ({"task": "khop", "ks": (0,)}, "each k is from 1 to 64"),
        ({"task": "khop", "size": 4, "ks": (1, 4)}, "k = 4 goes around all 4 letters"),
        ({"task": "arithmetic", "size": 11}, "size = 11: arithmetic takes 2 to 10"),
    ],
)
def test_bad_tasks(given: dict[str, Any], words: str) -> None:
    with pytest.raises(DepthbenchError, match=words):
        TaskConfig.parse(given)


def test_few_questions_are_trained_on_again() -> None:
    """Of 147 sums of two, a quarter is tested and the others come up as often as one another."""
    train, test = questions(TaskConfig(task="arithmetic", ks=(1,), size=7, train=1110), 1)
    assert len(test) == 36
    assert len(set(train)) == 111
    assert {train.count(one) for one in set(train)} == {10}
    assert not set(train) & set(test)
    with pytest.raises(DepthbenchError, match="has only about 4 different questions"):
        questions(TaskConfig(task="brackets", ks=(1,), size=1), 1)


def test_a_model_of_text_has_no_task() -> None:
    with pytest.raises(DepthbenchError, match="was trained on no task"):
        list(measure_task(machinery_of(bytes_model()), None))
