"""Smaller Hugging Face models: what they compute, and that plain transformers reads them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from depthbench.cli.app import execute
from depthbench.errors import DepthbenchError
from depthbench.probes.batch import Batch
from depthbench.probes.hf_versions import cache_name
from depthbench.probes.huggingface import HuggingFaceSubject
from depthbench.probes.load import load
from depthbench.probes.program import program_of
from depthbench.probes.weights import hash_of
from tests.probes.test_huggingface import ROWS, close, logits
from tests.probes.test_pretrained import saved
from tests.probes.tiny import FAMILIES, since_5, tiny


@torch.no_grad()
@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "deepseek_v4"])
def test_a_smaller_model_is_the_program(family: str, tmp_path: Path) -> None:
    subject = HuggingFaceSubject(tiny(family), family)
    batch = Batch.of_rows(ROWS)
    right = logits(subject.session(batch), program_of([0, 1, 3], 4))
    small = subject.smaller([0, 1, 3])
    close(small.session(batch).own_logits(), right)
    assert small.facts.layers == 3
    assert small.facts.notes == ("blocks 0, 1, 3 of 4",)
    assert hash_of(subject.model) == subject.facts.weights_hash
    small.write(tmp_path / "small")
    read: Any = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "small")
    close(read(batch.tokens, use_cache=False).logits, right)
    assert read.config.num_hidden_layers == 3
    assert load(tmp_path / "small").facts.weights_hash == small.facts.weights_hash
    row = torch.tensor([ROWS[0]])
    cached = read(row[:, :-1], use_cache=True)
    after = read(row[:, -1:], use_cache=True, **{cache_name(): cached[cache_name()]})
    close(after.logits[0, -1], right[0, len(ROWS[0]) - 1], rtol=1e-4)


def test_it_is_written_whole_with_its_tokenizer(tmp_path: Path) -> None:
    place = saved(tmp_path / "model")
    subject = load(place)
    small = subject.smaller([0, 2])
    small.write(tmp_path / "out" / "small")
    coder = transformers.AutoTokenizer.from_pretrained(tmp_path / "out" / "small")
    words = "the depth of a model"
    whole = transformers.AutoTokenizer.from_pretrained(place)
    assert coder(words)["input_ids"] == whole(words)["input_ids"]
    with pytest.raises(DepthbenchError, match=r"small cannot be written: .* Name another"):
        small.write(tmp_path / "out" / "small")
    assert [one.name for one in (tmp_path / "out").iterdir()] == ["small"]


def test_the_command_leaves_its_facts_once(tmp_path: Path) -> None:
    place, out = saved(tmp_path / "model"), tmp_path / "small"
    (tmp_path / "words.txt").write_text("the depth of a model\n" * 50)
    asked = ["--keep", "3", "--by", "angular", "--tokens", "64", "--length", "16"]
    asked += ["--data", str(tmp_path / "words.txt"), "--out", str(out)]
    assert execute(["prune", str(place), *asked]) == 0
    assert json.loads((out / "prune.json").read_text())["by"] == "angular"
    files = {one.name for one in out.glob("*.json")}
    assert files - {one.name for one in place.glob("*.json")} == {"prune.json"}


@since_5
def test_types_of_blocks_go_along() -> None:
    subject = HuggingFaceSubject(tiny("deepseek_v4"), "v4")
    small = subject.smaller([1, 2, 3])
    batch = Batch.of_rows(ROWS)
    with torch.no_grad():
        right = logits(subject.session(batch), program_of([1, 2, 3], 4))
        close(small.session(batch).own_logits(), right)
