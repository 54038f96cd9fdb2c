"""Study files: what they may hold, and what is refused in which words."""

from pathlib import Path
from typing import Any

import pytest

from depthbench.designs import label_of
from depthbench.errors import DepthbenchError
from depthbench.studies import packaged, read_study
from depthbench.study.config import Resources, ShapesConfig, Sizes, StudyConfig
from depthbench.study.process import places
from tests.small import study_config, study_tables

TEXT = Path("words.txt")
SIZE = {"layers": 1, "width": 16, "heads": 2, "ffn": 24}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"designs": []}, "designs = []: tuple should have at least 1 item"),
        ({"designs": ["prenom"]}, "unknown design 'prenom', did you mean 'prenorm'? Allowed: attn"),
        ({"designs": [{"streams": 2}]}, "has no name. Write 'hc' or { name ="),
        ({"designs": [{"name": "hc", "steams": 2}]}, "unknown key 'steams', did you mean 'stream"),
        ({"designs": ["hc", {"name": "hc"}]}, "design 'hc' is named twice: name each variant once"),
        ({"designs": "hc"}, "designs = 'hc': a list is needed here, such as [1, 2]"),
        ({"seeds": []}, "seeds = []: tuple should have at least 1 item"),
        ({"seeds": [1, 1]}, "seeds = [1, 1] repeats a seed"),
        ({"seeds": [-1]}, "seeds.0 = -1: input should be greater than or equal to 0"),
        ({"search": {"learning_rates": []}}, "learning_rates = []: tuple should have at least 1"),
        ({"search": {"learning_rates": [0.0]}}, "learning_rates.0 = 0.0: input should be greater"),
        ({"search": {"learning_rates": [-1e-3]}}, "learning_rates.0 = -0.001: input should be gr"),
        ({"search": {"learning_rates": [float("nan")]}}, "learning_rates.0 = nan: input should"),
        ({"search": {"learning_rates": [1e-3, 1e-3]}}, "a learning rate is named twice"),
        ({"name": "a/b"}, "name = 'a/b': string should match pattern"),
        ({"name": ".."}, "name = '..': string should match pattern"),
        ({"shapes": {}}, "shapes: give exactly one of params, family and sizes (given: none of"),
        ({"shapes": {"params": "1M", "family": "400m"}}, "(given: params, family)"),
        ({"shapes": {"params": "1M"}}, "a budget in params needs either depths or aspect_ratios"),
        ({"shapes": {"params": "1M", "depths": []}}, "needs either depths or aspect_ratios"),
        ({"shapes": {"params": "1M", "depths": [2], "aspect_ratios": [9.0]}}, "needs either"),
        ({"shapes": {"params": "1M", "depths": [0]}}, "depths.0 = 0: input should be greater than"),
        ({"shapes": {"params": 1000, "depths": [2]}}, "params = 1000: text in quotes is needed"),
        ({"train": {"tokens": 5}}, "evaluations = 4 is more than the steps (1) that 5 tokens give"),
        ({"data": {"domains": ["cod"]}}, "unknown domain 'cod', did you mean 'code'?"),
        ({"backbone": {"rope_bass": 1.0}}, "'dense': unknown key 'rope_bass', did you mean 'rope_"),
        ({"backbone": "hybird"}, "unknown backbone 'hybird', did you mean 'hybrid'? Allowed: den"),
        ({"backbone": {"name": "moe", "expert": 4}}, "key 'expert', did you mean 'experts'?"),
        ({"backbone": {"name": "moe", "top_k": 9}}, "top_k = 9 is more than experts = 8. Use few"),
        ({"backbone": {"name": "moe", "top_k": 1}}, "top_k = 1 with renormalise makes every weig"),
        ({"backbone": {"experts": 4}}, "backbone 'dense': unknown key 'experts'"),
        ({"backbone": 3}, "backbone 3 is no table of settings. Write { name = "),
        ({"desings": []}, "unknown key 'desings', did you mean 'designs'?"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(DepthbenchError) as caught:
        StudyConfig.parse(study_tables(TEXT, **changes), "s.toml")
    text = str(caught.value)
    assert text.startswith("s.toml: ")
    assert words in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"width": -16}, "width = -16"),
        ({"heads": 3}, "width 16 is not divisible by heads 3. Use a width that is a multiple of 6"),
        ({"heads": 16}, "head width 1 (width 16 / heads 16) is odd"),
        ({"kv_heads": 3}, "heads 2 is not divisible by kv_heads 3"),
        ({"layers": 0}, "layers = 0"),
    ],
)
def test_sizes_that_do_not_fit_together(changes: dict[str, int], words: str) -> None:
    with pytest.raises(DepthbenchError) as caught:
        Sizes.parse(SIZE | changes).shape(257)
    assert str(caught.value).startswith("shapes.sizes: ")
    assert words in str(caught.value)


def test_sizes_take_the_vocabulary_of_the_data_and_all_heads_for_keys() -> None:
    shape = Sizes.parse(SIZE).shape(300)
    assert (shape.vocab, shape.kv_heads, shape.head_dim) == (300, 2, 8)
    assert Sizes.parse(SIZE | {"kv_heads": 1}).shape(300).kv_heads == 1


def test_learning_rates_are_sorted_and_variants_are_told_apart() -> None:
    config = study_config(
        TEXT,
        designs=["hc", {"name": "hc", "mix": False}],
        search={"learning_rates": [2e-2, 1e-3]},
    )
    assert config.search.learning_rates == (1e-3, 2e-2)
    assert [label_of(design) for design in config.designs] == ["hc", "hc(mix=false)"]


def test_a_study_survives_its_own_resolved_form() -> None:
    config = study_config(TEXT, designs=["prenorm", {"name": "hc", "streams": 2}])
    again = StudyConfig.parse(config.resolved())
    assert again == config
    assert again.digest() == config.digest()
    assert ShapesConfig.parse(config.shapes.resolved()) == config.shapes


def test_the_packaged_studies_are_in_order() -> None:
    assert set(packaged()) == {"demo", "pocket", "published-400m"}
    for name in packaged():
        assert StudyConfig.parse(read_study(name), name).name == name


RESOURCES = {
    "fewer cores than processes": (
        {"processes": 2, "cpus": 1},
        "resources: cpus = 1 is less than one for each of 2 processes. Use at least 2",
    ),
    "a fraction of several GPUs": (
        {"gpus": 1.5},
        "resources: gpus = 1.5: only a single process can have a fraction of one GPU. "
        "Use a whole number",
    ),
    "two processes on half a GPU": (
        {"processes": 2, "gpus": 0.5},
        "resources: gpus = 0.5: only a single process can have a fraction of one GPU. "
        "Use a whole number",
    ),
    "fewer GPUs than processes": (
        {"processes": 3, "gpus": 2},
        "resources: gpus = 2 is less than one for each of 3 processes. Use at least 3",
    ),
}


@pytest.mark.parametrize("kind", RESOURCES)
def test_resources_that_fight_each_other_are_refused(kind: str) -> None:
    given, expected = RESOURCES[kind]
    with pytest.raises(DepthbenchError) as caught:
        study_config(Path("words.txt"), resources=given)
    assert str(caught.value) == expected


def test_resources_of_one_trial() -> None:
    plain = Resources()
    assert (plain.cores, plain.threads, plain.gpus_on("cpu"), plain.gpus_on("cuda")) == (1, 1, 0, 1)
    both = Resources(processes=2, cpus=7)
    assert (both.cores, both.threads, both.gpus_on("cpu"), both.gpus_on("cuda")) == (7, 3, 0, 2)
    assert Resources(gpus=0.25).gpus_on("cuda") == 0.25


def test_machines_have_room_for_whole_trials() -> None:
    assert places(cores=8, gpus=0, cores_each=3, gpus_each=0) == 2
    assert places(cores=8, gpus=2, cores_each=1, gpus_each=1) == 2
    assert places(cores=8, gpus=7, cores_each=1, gpus_each=2) == 3
    # three trials a GPU: a fourth would have to be split between two
    assert places(cores=8, gpus=2, cores_each=1, gpus_each=0.3) == 6
    assert places(cores=2, gpus=0, cores_each=1, gpus_each=1) == 0
