"""`depthbench generate`: text from the trials of a study, by bytes and by BPE."""

import json
from pathlib import Path

import pytest
import tomli_w
import torch

from depthbench.cli.app import execute
from depthbench.nn.generate import generate
from depthbench.train.load import load_trial
from tests.small import study_tables, write_text

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generate")
    write_text(folder)
    return folder


@pytest.fixture(autouse=True)
def _cache(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(root / "cache"))


def trial_of(root: Path, name: str, vocab: dict[str, object]) -> Path:
    """The folder of a trained trial; made at the first call."""
    folder = root / "runs" / name
    if not folder.is_dir():
        data = {"paths": [str(root / "words.txt")], **vocab}
        changes = {"name": name, "designs": ["cascade"], "search": {"learning_rates": [1e-2]}}
        path = root / f"{name}.toml"
        path.write_text(tomli_w.dumps(study_tables(root / "words.txt", data=data, **changes)))
        assert execute(["run", str(path), "--out", str(root / "runs"), "--workers", "1"]) == 0
    return sorted((folder / "trials").iterdir())[0]


@pytest.fixture(scope="module")
def by_bytes(root: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEPTHBENCH_CACHE", str(root / "cache"))
        return trial_of(root, "bytes", {})


def test_text_is_the_models_own(by_bytes: Path, capsys: Capture) -> None:
    """The same tokens as from the API, behind the document token."""
    capsys.readouterr()
    assert execute(["generate", str(by_bytes), "--prompt", "depth ", "--tokens", "12"]) == 0
    said = capsys.readouterr().out
    model, _ = load_trial(by_bytes)
    prompt = torch.tensor([[256, *b"depth "]])
    ids = generate(model, prompt, 12, stop=256, vocab=257)[0, 1:].tolist()
    assert said == bytes(i for i in ids if i != 256).decode(errors="replace") + "\n"
    assert said.startswith("depth ")


def test_a_seed_repeats_and_json_tells_how(by_bytes: Path, capsys: Capture) -> None:
    capsys.readouterr()
    answers = []
    for seed in (1, 1, 2):
        options = ["--tokens", "20", "--temperature", "1", "--top-k", "50", "--seed", str(seed)]
        assert execute(["generate", str(by_bytes), "--json", *options]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0] == answers[1]
    assert answers[0]["text"] != answers[2]["text"]
    assert answers[0]["sampling"] == {"temperature": 1.0, "top_k": 50, "top_p": None, "seed": 1}
    assert answers[0]["tokens"] == 20 or answers[0]["ended"]


def test_a_bpe_of_the_study(root: Path, capsys: Capture) -> None:
    trial = trial_of(root, "bpe", {"tokenizer": "bpe", "vocab": 280})
    capsys.readouterr()
    assert execute(["generate", str(trial), "--prompt", "naïve café", "--tokens", "5"]) == 0
    assert capsys.readouterr().out.startswith("naïve café")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{root}/nowhere"], "config.json cannot be read: No such file"),
        (["{root}/runs/bytes"], "Name one of its trials, such as"),
        (["{trial}", "--temperature", "-1"], "temperature = -1"),
        (["{trial}", "--top-p", "2"], "top_p = 2"),
        (["{trial}", "--device", "gpu"], "unknown device 'gpu'"),
    ],
)
def test_what_is_refused(
    root: Path, by_bytes: Path, arguments: list[str], message: str, capsys: Capture
) -> None:
    capsys.readouterr()
    filled = [part.format(root=root, trial=by_bytes) for part in arguments]
    assert execute(["generate", *filled]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_broken_files_are_named(by_bytes: Path, tmp_path: Path, capsys: Capture) -> None:
    capsys.readouterr()
    (tmp_path / "config.json").write_text("{")
    assert execute(["generate", str(tmp_path)]) == 2
    assert "config.json is no valid JSON" in capsys.readouterr().err
    (tmp_path / "config.json").write_text((by_bytes / "config.json").read_text())
    assert execute(["generate", str(tmp_path)]) == 2
    assert "holds no weights" in capsys.readouterr().err
    weights = tmp_path / "checkpoints" / "step-000001" / "model.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"not a file of tensors")
    assert execute(["generate", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "step-000001 is no whole checkpoint" in error
    assert "Train the trial again" in error


def test_data_that_is_gone(by_bytes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(tmp_path))
    assert execute(["generate", str(by_bytes)]) == 2
