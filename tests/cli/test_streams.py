"""`depthbench streams`: from a checkpoint to a smaller one, and what it refuses."""

import json
import random
import string
from pathlib import Path
from typing import Any

import pytest
import torch

from depthbench.cli.app import execute
from depthbench.data.config import DataConfig
from depthbench.data.dataset import prepare
from depthbench.errors import DepthbenchError
from depthbench.probes.load import load
from depthbench.probes.run import read_result
from depthbench.probes.text import TextConfig
from depthbench.streams.bench import open_bench
from depthbench.streams.merge.plan import Alike
from depthbench.streams.merge.run import check_free, merge
from depthbench.streams.merge.weight import Weight
from depthbench.streams.retrain import retrain
from depthbench.streams.sites import Removal
from depthbench.streams.tune import TuneConfig
from depthbench.train.loop import Trial
from tests.fits import fits
from tests.small import SHAPE, trial_config

Capture = pytest.CaptureFixture[str]
TEXT = ["--tokens", "3k", "--length", "64"]


def write_domain(folder: Path, name: str, seed: int) -> Path:
    """Files of seeded words, with sentences and phrases."""
    chosen = random.Random(seed)
    words = ["".join(chosen.choices(string.ascii_lowercase, k=3)) for _ in range(12)]
    place = folder / name
    place.mkdir()
    for number in range(24):
        parts = [
            f"{' '.join(chosen.choices(words, k=4))}{chosen.choice([',', '.'])}" for _ in range(60)
        ]
        (place / f"{number}.txt").write_text(" ".join(parts), encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run of `hc` on three domains, in ``run``."""
    folder = tmp_path_factory.mktemp("streams")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEPTHBENCH_CACHE", str(folder / "cache"))
        paths = [str(write_domain(folder, name, seed)) for seed, name in enumerate("abc")]
        dataset = prepare(DataConfig.parse({"paths": paths}), folder / "cache")
        config = trial_config(dataset, design="hc", tokens=4096)
        Trial(config, dataset, folder / "run").run(lambda *_: None)
    (folder / "few.txt").write_text("Hi there.\n", encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def _here(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(root / "cache"))
    monkeypatch.chdir(root)


@pytest.mark.slow
def test_the_whole_way_by_command(root: Path, capsys: Capture) -> None:
    out = ["--out", "found"]
    options = ["--samples", "512", "--depths", "2", "--ranges", "2", *TEXT, *out]
    assert execute(["streams", "diagnose", "run", *options]) == 0
    said = capsys.readouterr().out
    assert "No verdict yet: too few seeds: re-trained with 0 of 3" in said
    names = {path.stem for path in (root / "found").glob("*.json")}
    assert names == {"verdict", "information", "shared", "ablation", "collapse"}
    trained = ["--retrain", "--seeds", "2", "--steps", "4", "--ranges", "2", *TEXT, *out]
    assert execute(["streams", "ablate", "run", *trained]) == 0
    said = capsys.readouterr().out
    assert "too few seeds: re-trained with 2 of 3" in said
    assert "not converged yet: 2 validations, 5 must be flat" in said
    result = read_result(root / "found" / "retrained.json")
    rows = result.options["rows"]
    # four streams over all blocks and two ranges, and the control, with each of two seeds
    assert len([row for row in rows if row["removal"] is None]) == 2
    assert len([r for r in rows if r["removal"] and len(r["removal"]["streams"]) == 1]) == 2 * 12
    both = [one.name for one in result.findings]
    assert both.index("retrained_3") == both.index("hard_3") + 1
    page = (root / "found" / "report.html").read_text(encoding="utf-8")
    assert "No verdict yet" in page
    assert (root / "found" / "figures" / "retrained-hard_0.png").stat().st_size > 1000

    merging = ["--steps", "6", "--samples", "8", "--json", *TEXT]
    for way in ("weight", "projection", "fade"):
        made = ["streams", "merge", "run", "--into", "2", "--way", way, "--out", way]
        assert execute([*made, *merging]) == 0
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        fits("merged-into", answer)
        assert answer["before"]["streams"] == 4
        assert answer["after"]["streams"] == 2
        assert answer["after"]["state_bytes"] == answer["before"]["state_bytes"] // 2
        assert answer["after"]["parameters"] < answer["before"]["parameters"]
        assert len(answer["training"]) == 6
        subject = load(way)
        assert subject.facts.streams == 2
        assert subject.facts.weights_hash == answer["weights_hash"]
        config = json.loads((root / way / "config.json").read_text(encoding="utf-8"))
        assert config["model"]["design"]["streams"] == 2
        assert not (root / way / "going").exists()
    again = ["streams", "merge", "weight", "--into", "1", "--out", "single", *merging]
    assert execute(again) == 0
    capsys.readouterr()
    assert load("single").facts.streams == 1
    assert execute(["streams", "report", "found-nothing"]) == 2
    assert "holds no results" in capsys.readouterr().err


def test_a_killed_merge_goes_on_to_the_same_weights(root: Path) -> None:
    bench = open_bench("run", TextConfig(tokens=512, length=32))
    way = Weight(tune=TuneConfig(steps=8, rate=0.2, warmup=2, save_every=3))
    whole = merge(bench, way, {3: 1}, root / "whole", samples=8)

    def die(step: int, loss: float) -> None:
        if step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        merge(bench, way, {3: 1}, root / "killed", samples=8, hear=die)
    steps: list[int] = []
    resumed = merge(
        bench, way, {3: 1}, root / "killed", samples=8, hear=lambda step, _: steps.append(step)
    )
    assert steps == [4, 5, 6, 7, 8]
    assert resumed.weights_hash == whole.weights_hash
    assert resumed.training == whole.training
    assert resumed.notes == ()

    # killed behind the model, in front of the result
    (root / "killed" / "merge.json").unlink()
    with pytest.raises(DepthbenchError, match="exists and is not empty"):
        check_free(root / "killed")
    (root / "killed" / "going").mkdir()
    (root / "killed" / ".merge.json.half").write_text("{", encoding="utf-8")
    check_free(root / "killed")
    assert merge(bench, way, {3: 1}, root / "killed", samples=8).training == whole.training
    assert load(root / "killed").facts.weights_hash == whole.weights_hash
    (root / "killed" / "going").mkdir()
    (root / "killed" / "notes.txt").touch()
    with pytest.raises(DepthbenchError, match="exists and is not empty"):
        check_free(root / "killed")

    result = read_result(root / "whole" / "streams" / "merge.json")
    assert result.number("loss_before").value == whole.before.loss
    assert result.number("loss.a_after").value == whole.after.loss_by_domain["a"]
    for name, rate, ends in (
        ("reads_after", whole.after.reads_per_second, whole.after.reads_ends),
        ("trains_before", whole.before.trains_per_second, whole.before.trains_ends),
    ):
        number = result.number(name)
        assert (number.value, number.low, number.high) == (rate, *ends)
        assert ends[0] <= rate <= ends[1]
    assert result.subject.weights_hash == whole.weights_hash
    assert result.subject.streams == 3


def test_a_merge_says_what_it_cannot_go_on_from(root: Path) -> None:
    bench = open_bench("run", TextConfig(tokens=512, length=32))
    way = Weight(tune=TuneConfig(steps=4, rate=0.2, warmup=1, save_every=2))

    def die(step: int, loss: float) -> None:
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        merge(bench, way, {3: 1}, root / "cut", samples=8, hear=die)
    [weights] = (root / "cut" / "going").glob("step-*/model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-100])
    said: list[str] = []
    steps: list[int] = []
    found = merge(
        bench,
        way,
        {3: 1},
        root / "cut",
        samples=8,
        hear=lambda step, _: steps.append(step),
        say=said.append,
    )
    assert steps == [1, 2, 3, 4]
    [words] = said
    assert "step-000002 was altered" in words
    assert words.endswith("training on goes on from step 0")
    assert found.notes == (words,)
    assert read_result(root / "cut" / "streams" / "merge.json").words[-1] == words


def test_retraining_is_kept_and_leaves_the_model_alone(root: Path) -> None:
    bench = open_bench("run", TextConfig(tokens=512, length=32))
    before = bench.subject.facts.weights_hash
    removals = [Removal(streams=(2,), stop=SHAPE.layers)]
    config = TuneConfig(steps=3, warmup=1)

    def again() -> list[Any]:
        return retrain(
            lambda: bench, removals, range(2), config, root / "kept", about="one", batches=1
        )

    rows = again()
    assert [(row.removal is None, row.seed) for row in rows] == [
        (True, 0),
        (False, 0),
        (True, 1),
        (False, 1),
    ]
    assert len({row.nats for row in rows}) == 4
    assert open_bench("run", TextConfig(tokens=512, length=32)).subject.facts.weights_hash == before
    state = bench.subject.model.state_dict()
    fresh = load("run").module.state_dict()
    assert all(torch.equal(state[name], fresh[name]) for name in fresh)
    stamps = {path: path.stat().st_mtime_ns for path in (root / "kept").glob("*.json")}
    assert again() == rows
    others = retrain(
        lambda: bench, removals, [0], config, root / "kept", about="another", batches=1
    )
    assert len(list((root / "kept").glob("*.json"))) == len(stamps) + len(others)
    assert bench.about != open_bench("run", TextConfig(tokens=512, length=16)).about
    for path in set((root / "kept").glob("*.json")) - set(stamps):
        path.unlink()
    assert stamps == {path: path.stat().st_mtime_ns for path in (root / "kept").glob("*.json")}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ablate", "run", "--streams", "4"], "streams = '4' must name some of 0 to 3"),
        (["ablate", "run", "--streams", "a"], "streams = 'a' must name some of 0 to 3"),
        (["ablate", "run", "--layers", "1:9"], "layers = '1:9' must be two numbers from 0 to 2"),
        (["ablate", "run", "--layers", "1"], "layers = '1' must be two numbers"),
        (["merge", "run", "--out", "x"], "name either --into"),
        (["merge", "run", "--out", "x", "--into", "4"], "into = 4 must be 1 to 3"),
        (["merge", "run", "--out", "x", "--into", "0"], "into = 0 must be 1 to 3"),
        (["merge", "run", "--out", "x", "--pairs", "3:3"], "pairs = '3:3'"),
        (["merge", "run", "--out", "run", "--into", "2"], "run exists and is not empty"),
        (["merge", "run", "--out", "x", "--into", "2", "--way", "wieght"], "'weight'"),
        (["merge", "run", "--out", "x", "--into", "3", "--way", "copies"], "no multiples"),
        (
            ["merge", "run", "--out", "x", "--into", "3", "--way", "copies", "--steps", "3"],
            "--way copies trains nothing",
        ),
        (["diagnose", "run", "--tokens", "256", "--samples", "3"], "sample.tokens = 3"),
        (["diagnose", "run", "--megabytes", "0.01"], "megabytes = 0.01 holds"),
        (["diagnose", "nothing-here"], "nothing-here"),
        (
            ["diagnose", "run", "--workers", "0"],
            "greater than or equal to 1, not 0. See",
        ),
        (
            ["merge", "run", "--out", "x", "--into", "2", "--pairs", "3:1"],
            "2 and --pairs 3:1",
        ),
        (["merge", "owner/model", "--out", "x", "--into", "2"], "known. Name the folder of a run"),
        (["ablate", "owner/model", "--retrain"], "Leave --retrain out, or name the folder"),
        (
            ["ablate", "run", "--steps", "5", "--seeds", "2"],
            "2 --steps 5: nothing is trained",
        ),
        (["ablate", "run", "--rate", "0.1"], "--rate 0.1: nothing is trained without --retrain"),
        (["ablate", "run", "--keep", "0,1,2,3"], "keep = '0,1,2,3' names all 4 streams"),
        (["ablate", "run", "--tokens", "128"], "tokens = 128: more than 256 are needed"),
        (
            ["ablate", "run", "--data", "few.txt"],
            "has 10 tokens that can be looked at",
        ),
        (
            ["diagnose", "run", "--data", "few.txt"],
            "needed. Give more documents with --data",
        ),
        (["merge", "run", "--out", "x", "--into", "2", "--data", "few.txt"], "has 10 tokens"),
        (
            ["diagnose", "run", "--tokens", "16k", "--length", "8", "--data", "a/1.txt"],
            "Give more documents with --data, or read more of each with a larger --length",
        ),
        (["diagnose", "run", "--tokens", "258", "--length", "64"], "tokens = 258: ask for more"),
        (["report", "nothing/here"], "nothing/here is not there"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], words: str, capsys: Capture) -> None:
    assert execute(["streams", *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_streams_of_a_real_model_are_no_copies(root: Path) -> None:
    alike = Alike.measured(open_bench("run", TextConfig(tokens=512, length=32)).lab())
    assert alike.copies() == []
    # at the first place all streams are the embedding
    assert alike.left[0].max() < 1e-9
    assert alike.still() == []
    assert alike.constant() == []
