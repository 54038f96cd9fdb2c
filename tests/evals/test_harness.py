"""Tasks of the lm-evaluation-harness through our model and its own, on the same weights."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from depthbench.cli.app import execute
from depthbench.evals.accuracy import wilson
from tests.evals.small import byte_llama

pytest.importorskip("lm_eval")

QUIZ = """task: local_quiz
dataset_path: json
dataset_kwargs:
  data_files:
    test: {root}/quiz.jsonl
output_type: multiple_choice
test_split: test
doc_to_text: "{{{{question}}}} "
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
metric_list:
  - metric: acc
  - metric: acc_norm
"""
TEXTS = """task: local_text
dataset_path: json
dataset_kwargs:
  data_files:
    test: {root}/text.jsonl
output_type: loglikelihood_rolling
test_split: test
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list:
  - metric: word_perplexity
  - metric: byte_perplexity
  - metric: bits_per_byte
"""
WRITTEN = """task: local_written
dataset_path: json
dataset_kwargs:
  data_files:
    test: {root}/quiz.jsonl
output_type: generate_until
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{choices[0]}}}}"
generation_kwargs:
  until: ["e"]
  max_gen_toks: 8
metric_list:
  - metric: exact_match
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny LLaMA over bytes with its tokenizer, and three tasks with their data."""
    folder = tmp_path_factory.mktemp("harness")
    byte_llama(folder / "llama", 259)
    byte_llama(folder / "begins", 259, begins=True)
    quiz = [
        {"question": f"what is {n}?", "choices": [f"word {n}", "no", "naïve"], "answer": n % 3}
        for n in range(9)
    ]
    texts = [{"text": "depth and width " * n + f"end {n}."} for n in range(1, 9)]
    for name, rows in (("quiz", quiz), ("text", texts)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (folder / "tasks").mkdir()
    for name, task in (("quiz", QUIZ), ("text", TEXTS), ("written", WRITTEN)):
        (folder / "tasks" / f"{name}.yaml").write_text(task.format(root=folder), encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def _offline(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(root / "cache"))


pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


def test_equals_the_harness_own_model(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Choices, a perplexity over texts up to three rows long, and written answers."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    names = ["local_quiz", "local_text", "local_written"]
    hf = lm_eval.simple_evaluate(
        model="hf",
        model_args={"pretrained": str(root / "llama"), "dtype": "float32", "device": "cpu"},
        tasks=list(names),
        task_manager=TaskManager(include_path=str(root / "tasks")),
        batch_size=4,
        bootstrap_iters=1000,
    )
    assert hf is not None
    capsys.readouterr()
    given = [one for name in names for one in ("--lm-eval", name)]
    out = root / "out"
    arguments = ["eval", str(root / "llama"), *given, "--include-path", str(root / "tasks")]
    assert execute([*arguments, "--out", str(out), "--json"]) == 0
    found = json.loads((out / "eval.json").read_text(encoding="utf-8"))["measured"]
    assert [one["name"] for one in found] == names
    for one in found:
        own: dict[str, Any] = {number["name"]: number["value"] for number in one["numbers"]}
        theirs = {
            key.partition(",")[0]: value
            for key, value in hf["results"][one["name"]].items()
            if "," in key and "stderr" not in key
        }
        assert own == pytest.approx(theirs, rel=1e-5)
    assert {one["counts"]["questions"] for one in found} == {9, 8}
    assert os.environ["HF_HUB_OFFLINE"] == "1"


def test_every_answer_and_its_loss(root: Path) -> None:
    """Log-likelihoods and text of single requests are those of the harness's model."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    from depthbench.evals.harness import DepthbenchLM

    ours = DepthbenchLM(str(root / "llama"), batch_size=2)
    theirs = HFLM(pretrained=str(root / "llama"), dtype="float32", device="cpu", batch_size=2)
    pairs = [("what is ", "deep"), ("", "a beginning"), ("spaces  ", "x"), ("w" * 90, "long")]
    asked = [Instance("loglikelihood", {}, pair, n) for n, pair in enumerate(pairs)]
    with torch.no_grad():
        for own, other in zip(ours.loglikelihood(asked), theirs.loglikelihood(asked), strict=True):
            assert own == (pytest.approx(other[0], abs=1e-4), other[1])
        settings = {"until": ["\n", "o"], "max_gen_toks": 12}
        wanted = [Instance("generate_until", {}, (text, settings), 0) for text in ("ab", "depth ")]
        assert ours.generate_until(wanted) == theirs.generate_until(wanted)


@pytest.mark.parametrize("add", [None, True, False])
def test_one_token_begins_a_text_and_never_two(root: Path, add: bool | None) -> None:
    """CASES 29: as the tokenizer does or as asked, in front of contexts; whole texts have one.

    The harness's own model scores a second one in front of a whole text, where its tokenizer puts
    one there.
    """
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    from depthbench.evals.harness import DepthbenchLM

    given: dict[str, Any] = {"batch_size": 2, "add_bos_token": add}
    ours = DepthbenchLM(str(root / "begins"), **given)
    hf: dict[str, Any] = {"pretrained": str(root / "begins"), "dtype": "float32", "device": "cpu"}
    theirs, bare = HFLM(**hf, **given), HFLM(**hf, add_bos_token=False)
    pairs = [("what is ", "deep"), ("", "a beginning"), ("w" * 90, "long")]
    asked = [Instance("loglikelihood", {}, pair, n) for n, pair in enumerate(pairs)]
    text = [Instance("loglikelihood_rolling", {}, ("depth and width " * 5,), 0)]
    settings = {"until": ["\n", "o"], "max_gen_toks": 12}
    wanted = [Instance("generate_until", {}, (text, settings), 0) for text in ("ab", "depth ")]
    with torch.no_grad():
        for own, other in zip(ours.loglikelihood(asked), theirs.loglikelihood(asked), strict=True):
            assert own == (pytest.approx(other[0], abs=1e-4), other[1])
        assert ours.generate_until(wanted) == theirs.generate_until(wanted)
        once = ours.loglikelihood_rolling(text)
        assert once == pytest.approx(bare.loglikelihood_rolling(text), abs=1e-3)
        assert (once == pytest.approx(theirs.loglikelihood_rolling(text), abs=1e-3)) is (
            add is False
        )
    assert ours.front == (None if add is False else 1)


def test_a_block_less_changes_the_loss(root: Path) -> None:
    from lm_eval.api.instance import Instance

    from depthbench.evals.harness import DepthbenchLM

    asked = [Instance("loglikelihood", {}, ("what is ", "deep"), 0)]
    whole = DepthbenchLM(str(root / "llama")).loglikelihood(asked)
    less = DepthbenchLM(str(root / "llama"), skip="1+2").loglikelihood(asked)
    model = transformers.AutoModelForCausalLM.from_pretrained(root / "llama").eval()
    del model.model.layers[1:3]
    coder = transformers.AutoTokenizer.from_pretrained(root / "llama")
    ids = torch.tensor([coder("what is deep")["input_ids"]])
    with torch.no_grad():
        each = model(ids, use_cache=False).logits.log_softmax(-1)[0, :-1]
    # the space goes to the answer
    hand = each.gather(1, ids[0, 1:, None])[-5:].sum().item()
    assert less[0][0] == pytest.approx(hand, abs=1e-4)
    assert abs(less[0][0] - whole[0][0]) > 1e-3


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--lm-eval", "local_quizz"], "no such task"),
        (["--limit", "3"], "is for --lm-eval"),
    ],
)
def test_bad_input(
    root: Path, given: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*given, "--include-path", str(root / "tasks")]
    assert execute(["eval", str(root / "llama"), *given, "--out", str(root / "bad")]) == 2
    assert words in capsys.readouterr().err


def command(root: Path, *given: str) -> "subprocess.CompletedProcess[str]":
    """A command line of the harness, offline, in the folder of the tasks."""
    env = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(root / "cache")}
    return subprocess.run(
        [sys.executable, "-m", *given], cwd=root, env=env, capture_output=True, text=True
    )


def test_the_command_line_gives_what_hf_gives(root: Path) -> None:
    """``lm_eval --model depthbench`` and ``--model hf``, each in a process of its own."""
    tasks = ["--tasks", "local_quiz", "local_text", "--include_path", "tasks"]
    ours, theirs = "depthbench.evals.harness run --model depthbench", "lm_eval run --model hf"
    found: list[dict[str, Any]] = []
    for line, model in ((ours, "model=llama"), (theirs, "pretrained=llama,dtype=float32")):
        name = line.split()[-1]
        given = [*line.split(), "--model_args", model, *tasks, "--output_path", name]
        ran = command(root, *given)
        assert ran.returncode == 0, ran.stderr
        [path] = (root / name).rglob("results*.json")
        found.append(json.loads(path.read_text(encoding="utf-8"))["results"])
    for task in ("local_quiz", "local_text"):
        numbers = [
            {key: value for key, value in one[task].items() if isinstance(value, float)}
            for one in found
        ]
        assert numbers[0] == pytest.approx(numbers[1], rel=1e-6)
        assert len(numbers[0]) > 2


def test_the_command_line_says_what_is_wrong(root: Path) -> None:
    line = "depthbench.evals.harness run --model depthbench --model_args model=llama,skip=9"
    ran = command(root, *line.split(), "--tasks", "local_quiz", "--include_path", "tasks")
    assert ran.returncode == 2
    last = ran.stderr.strip().splitlines()[-1]
    assert last == "depthbench: block 9 is not there: the model has blocks 0 to 3"
    assert "Traceback" not in ran.stderr


def test_text_under_a_program_with_and_without_a_cache(root: Path) -> None:
    """A family of others has no cache for it; the same weights as a model of ours have."""
    from lm_eval.api.instance import Instance

    from depthbench.evals.harness import DepthbenchLM
    from depthbench.hub.llama_in import import_llama
    from depthbench.hub.own_folder import write_own

    came = import_llama(str(root / "llama"))
    write_own(came.model, root / "own", came.tokenizer)
    settings = {"until": ["\n"], "max_gen_toks": 12}
    asked = [Instance("generate_until", {}, (text, settings), 0) for text in ("ab", "depth ")]
    theirs = DepthbenchLM(str(root / "llama"), skip="1", max_length=48)
    ours = DepthbenchLM(str(root / "own"), skip="1", max_length=48)
    assert ours.generate_until(asked) == theirs.generate_until(asked)
    assert list(theirs.notes) == [
        "text is computed anew for every token: the cache of LlamaForCausalLM counts its blocks in "
        "order"
    ]
    assert not ours.notes


def test_shares_have_an_interval_that_is_one() -> None:
    """Of three questions two are right: 0.667 ± 1.96 of the standard error would end above 1."""
    from depthbench.evals.harness import _interval

    assert _interval("acc", 2 / 3, 0.333, 3) == (*wilson(2, 3), "95 % Wilson interval")
    assert _interval("acc", 1.0, 0.0, 3)[0] == pytest.approx(0.4385, abs=1e-4)
    low, high, span = _interval("f1", 0.5, 0.1, 3)
    assert (low, high) == pytest.approx((0.304, 0.696), abs=1e-3)
    assert span == "95 % by standard error"
    assert _interval("bits_per_byte", 1.2, "N/A", 3) == (None, None, "")
