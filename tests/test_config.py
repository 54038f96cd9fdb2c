"""Configs: what is refused, in which words, and what identifies them."""

from pathlib import Path
from typing import Any

import pytest

from depthbench.config import Frozen, digest_of, override, read_toml
from depthbench.errors import DepthbenchError
from depthbench.study.config import StudyConfig
from depthbench.train.config import TrainConfig
from tests.small import study_tables


def refusal(data: Any) -> str:
    with pytest.raises(DepthbenchError) as caught:
        TrainConfig.parse(data, "train")
    text = str(caught.value)
    assert "\n" not in text
    return text


def study_refusal(**changes: Any) -> str:
    with pytest.raises(DepthbenchError) as caught:
        StudyConfig.parse(study_tables(Path("words.txt"), **changes), "s.toml")
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_unknown_key_names_the_nearest_and_what_is_allowed() -> None:
    text = refusal({"tokenz": 5})
    assert text.startswith("train: unknown key 'tokenz', did you mean 'tokens'? Allowed: beta1, ")
    assert "warmup_fraction" in text


def test_unknown_key_inside_a_list_of_tables_names_the_keys_of_that_table() -> None:
    sizes = {"layers": 1, "widht": 16, "heads": 2, "ffn": 24}
    text = study_refusal(shapes={"sizes": [sizes]})
    assert text.startswith("s.toml: unknown key 'shapes.sizes.0.widht', did you mean 'width'?")
    assert text.endswith("Allowed: ffn, head_width, heads, kv_heads, layers, width (and 1 more)")


def test_a_missing_key_is_named() -> None:
    tables = study_tables(Path("words.txt"))
    del tables["search"]
    with pytest.raises(DepthbenchError, match=r"^s: 'search' is missing: add it$"):
        StudyConfig.parse(tables, "s")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"tokens": "200"}, "tokens = '200': a number is needed"),
        ({"tokens": True}, "tokens = True: a number is needed"),
        ({"tokens": 2.5}, "tokens = 2.5: input should be a valid integer"),
        ({"tokens": 0}, "tokens = 0: input should be greater than or equal to 1"),
        ({"tokens": None}, "tokens = None: input should be a valid integer"),
        ({"save_model": "yes"}, "save_model = 'yes': true or false is needed"),
        ({"save_model": 1}, "save_model = 1: true or false is needed"),
        ({"eps": float("nan")}, "eps = nan: input should be a finite number"),
        ({"eps": "1e-8"}, "eps = '1e-8': a number is needed"),
        ({"beta1": 1.0}, "beta1 = 1.0: input should be less than 1"),
        ({"dtype": "float16"}, "dtype = 'float16': input should be 'auto', 'float32' or 'bf"),
        ({"device": 3}, "device = 3: text in quotes is needed here"),
        ({"tokens": 0, "length": 0}, "(and 1 more)"),
        ("train", "table of settings"),
        ({"tokens": 64, "length": 16, "sequences": 2, "evaluations": 3}, "more than the steps (2)"),
    ],
)
def test_wrong_values_name_field_value_and_what_is_needed(data: Any, words: str) -> None:
    assert words in refusal(data)


def test_wrong_types_inside_lists_are_refused() -> None:
    assert "seeds = ['1']: a number is needed" in study_refusal(seeds=["1"])
    assert "learning_rates" in study_refusal(search={"learning_rates": [0.01, True]})


def test_an_error_across_fields_of_a_table_does_not_print_the_table() -> None:
    text = study_refusal(train={"tokens": 10, "evaluations": 5})
    assert text.startswith("s.toml: train: evaluations = 5 is more than the steps (1)")


def test_a_whole_float_is_a_whole_number() -> None:
    tokens = TrainConfig.parse({"tokens": 2e5}).tokens
    assert tokens == 200_000
    assert isinstance(tokens, int)


def test_a_frozen_config_cannot_be_changed() -> None:
    config = TrainConfig()
    with pytest.raises(ValueError, match="frozen"):
        config.tokens = 5  # pyright: ignore[reportAttributeAccessIssue]


class Pair(Frozen):
    """Two fields."""

    first: int = 1
    second: float = 0.5


class Swapped(Frozen):
    """The same two, declared the other way round."""

    second: float = 0.5
    first: int = 1


def test_digest_is_stable_and_blind_to_order() -> None:
    # a digest that changes makes every finished trial of every user be trained again
    assert digest_of({"b": [1, 2.5], "a": "ä"}) == "5365cd93aa9a"
    assert digest_of({"a": "ä", "b": [1, 2.5]}) == digest_of({"b": [1, 2.5], "a": "ä"})
    assert digest_of({"a": [1, 2]}) != digest_of({"a": [2, 1]})
    assert Pair().digest() == Swapped().digest() == Pair.parse({"second": 0.5}).digest()
    assert Pair(first=2).digest() != Pair().digest()


def test_override_reads_toml_values_and_leaves_the_original_alone() -> None:
    original = {"train": {"tokens": 1}, "seeds": [0]}
    changed = override(
        original,
        ["train.tokens=2e5", "seeds=[1, 2]", "train.device=cuda", "data.tokenizer = 'bpe'"],
    )
    assert changed == {
        "train": {"tokens": 2e5, "device": "cuda"},
        "seeds": [1, 2],
        "data": {"tokenizer": "bpe"},
    }
    assert original == {"train": {"tokens": 1}, "seeds": [0]}


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("train.tokens", "override 'train.tokens' is no key=value. Example: train.sequences=8"),
        ("=5", "override '=5' is no key=value"),
        ("seeds.0=5", "override 'seeds.0=5': 'seeds' is no table of settings"),
        ("train.tokens.x=5", "override 'train.tokens.x=5': 'tokens' is no table of settings"),
    ],
)
def test_override_refuses_what_it_cannot_place(assignment: str, words: str) -> None:
    with pytest.raises(DepthbenchError) as caught:
        override({"seeds": [0], "train": {"tokens": 1}}, [assignment])
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)


def test_override_keeps_dates_for_the_config_to_refuse() -> None:
    tables = override(study_tables(Path("words.txt")), ["train.tokens=2020-01-01"])
    tables = override(tables, ["title=x"])
    with pytest.raises(DepthbenchError, match=r"train\.tokens = datetime"):
        StudyConfig.parse(tables)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"name = ", "is no valid TOML: Invalid value (at end of document). Mend that line"),
        (b"\xff\xfe", "is no UTF-8 text. A study file is TOML"),
        (None, "no such file. Check the path of the study file"),
    ],
)
def test_broken_toml_files_are_named(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "s.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DepthbenchError) as caught:
        read_toml(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_or_a_path_through_a_file_is_no_study_file(tmp_path: Path) -> None:
    with pytest.raises(DepthbenchError, match=r"is a folder\. Name the \.toml file inside it"):
        read_toml(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(DepthbenchError, match="cannot be read: Not a directory"):
        read_toml(tmp_path / "file" / "s.toml")


def test_a_list_of_nothing_but_mistakes_is_not_too_short_as_well() -> None:
    text = study_refusal(designs=["nope"])
    assert "'nope'" in text
    assert "more)" not in text


def test_seeds_are_what_every_generator_takes() -> None:
    tables = study_tables(Path("words.txt"), seeds=[0, 2**63 - 1])
    assert StudyConfig.parse(tables).seeds == (0, 2**63 - 1)
    for wrong in (-1, 2**63):
        assert study_refusal(seeds=[0, wrong]).startswith(f"s.toml: seeds.1 = {wrong}: ")
