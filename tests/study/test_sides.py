"""What may stand for a side of a comparison."""

from pathlib import Path

import pytest

from depthbench.errors import DepthbenchError
from depthbench.study.sides import folder_name, parse_sides
from depthbench.study.single import RunConfig


def test_two_designs_with_shared_settings() -> None:
    (a, b), labels = parse_sides("prenorm", "hc", ["shape.layers=8", "train.tokens=2e5"])
    assert labels == ("prenorm", "hc")
    assert (a.design.name, b.design.name) == ("prenorm", "hc")
    for side in (a, b):
        assert (side.shape.layers, side.shape.width) == (8, RunConfig().shape.width)
        assert side.train.tokens == 200_000
        # differences are per step, so every step is logged
        assert side.train.log_every == 1
    assert a.model_copy(update={"design": b.design}) == b
    assert folder_name(labels) == "prenorm-vs-hc"


def test_a_side_with_settings_of_its_own() -> None:
    (a, b), labels = parse_sides("hc", "hc mix=false learning_rate=1e-3", ["learning_rate=0.01"])
    assert labels == ("hc", "hc(mix=false) learning_rate=1e-3")
    assert (a.design.resolved()["mix"], b.design.resolved()["mix"]) == (True, False)
    # a side's own setting wins over the shared one
    assert (a.learning_rate, b.learning_rate) == (0.01, 1e-3)
    assert folder_name(labels) == "hc-vs-hc-mix-false-learning_rate-1e-3"


def test_values_keep_their_quotes() -> None:
    text = """hc data.paths=['/some where/a.txt', "/b.txt"] name="x" """
    (_, b), _ = parse_sides("prenorm", text.replace("', ", "',"), [])
    assert b.data.paths == ("/some where/a.txt", "/b.txt")
    assert b.name == "x"


def test_files_give_their_name(tmp_path: Path) -> None:
    one, other = tmp_path / "a.toml", tmp_path / "with a space.toml"
    one.write_text('design = "keel"\n[train]\nlog_every = 5\n')
    other.write_text('name = "mine"\n[design]\nname = "hc"\nstreams = 2\n')
    (a, b), labels = parse_sides(f"{one} seed=4", str(other), ["train.sequences=8"])
    assert labels == ("a seed=4", "mine")
    assert (a.design.name, a.train.log_every, a.train.sequences, a.seed) == ("keel", 5, 8, 4)
    assert (b.design.resolved()["streams"], b.train.log_every, b.seed) == (2, 1, 0)


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for folder, rate in (("one", 0.1), ("two", 0.2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "run.toml").write_text(f"learning_rate = {rate}\n")
    _, labels = parse_sides(str(tmp_path / "one/run.toml"), str(tmp_path / "two/run.toml"), [])
    assert labels == ("run (A)", "run (B)")


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ("prenrm", "hc", "did you mean 'prenorm'"),
        ("hc", "hc", "are the same run"),
        ("hc", "hc mix=true", "are the same run"),
        ("hc", "hc mx=true", "unknown setting 'mx', did you mean 'mix'"),
        ("hc", "nowhere.toml", "nowhere.toml"),
        ("hc", "", "begins with no design and no file"),
        ("hc", "learning_rate=1e-3", "begins with no design and no file"),
        ("hc", "prenorm wide", "unknown setting 'wide'"),
    ],
)
def test_what_is_refused(a: str, b: str, words: str) -> None:
    with pytest.raises(DepthbenchError, match=words):
        parse_sides(a, b, [])
