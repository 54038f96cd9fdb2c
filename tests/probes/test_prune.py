"""Smaller models: chosen as asked, equal to their program, written in the same format."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import depthbench
from depthbench.cli.app import execute
from depthbench.designs import REGISTRY
from depthbench.errors import DepthbenchError
from depthbench.probes.ablate import Prune
from depthbench.probes.angular import Angular
from depthbench.probes.causal import Causal
from depthbench.probes.choose import WAYS, chosen
from depthbench.probes.heal import HealConfig
from depthbench.probes.own import OwnSubject
from depthbench.probes.permutation import Permutation
from depthbench.probes.prune import prune
from tests.fits import fits
from tests.probes.small import in_batches, lab_of, random_own, rows
from tests.small import write_text

Capture = pytest.CaptureFixture[str]
TEXT = in_batches(rows((16,) * 8), 2)
TIED = {"deepnorm", "keel", "lns", "denseformer", "dynamic_dense", "mix_ln", "block_attnres"}
"""Designs of which a block is another function at another place."""


@pytest.mark.parametrize("design", REGISTRY)
@torch.no_grad()
def test_a_smaller_model_is_its_program_or_refused(design: str) -> None:
    subject = OwnSubject(random_own(design, 5), "test")
    if design in TIED:
        with pytest.raises(DepthbenchError, match="place") as error:
            prune(subject, TEXT, 3, "loss", HealConfig())
        assert "\n" not in str(error.value)
        return
    small, found = prune(subject, TEXT, 3, "loss", HealConfig())
    assert len(found.kept) == small.layers == 3
    assert sorted([*found.kept, *found.left_out]) == list(range(5))
    batch = TEXT.batches[0]
    expected = subject.model(batch.tokens, program=list(found.kept))
    got = small.session(batch).own_logits()
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)


def test_each_way_leaves_out_what_it_says() -> None:
    lab = lab_of(random_own("prenorm", 6), TEXT)
    angles = np.array(Angular().run(lab).matrix("angle").values, dtype=float)
    span = int(np.argmin(np.diagonal(angles, 2)))
    assert chosen(lab, 4, "angular") == [n for n in range(6) if n not in (span, span + 1)]
    effects = np.array(Causal().run(lab).matrix("effect").values, dtype=float)
    least = np.argsort([np.nanmean(row) for row in effects[:-1]])[:2]
    assert chosen(lab, 4, "causal") == [n for n in range(6) if n not in least]
    swaps = np.array(Permutation().run(lab).matrix("change").values, dtype=float)
    least = np.argsort([np.nanmean(row) for row in swaps])[:2]
    assert chosen(lab, 4, "permutation") == [n for n in range(6) if n not in least]
    first = int(np.argmin(np.array(Prune().run(lab).curve("block").values, dtype=float)))
    assert first not in chosen(lab, 5, "loss")
    assert set(WAYS) == {"loss", "angular", "causal", "permutation"}


@pytest.mark.parametrize(
    ("keep", "by", "words"),
    [(0, "loss", "keep = 0"), (6, "loss", "Keep 1 to 5"), (3, "los", "did you mean 'loss'")],
)
def test_what_is_refused(keep: int, by: str, words: str) -> None:
    with pytest.raises(DepthbenchError, match=words):
        chosen(lab_of(random_own("prenorm", 6), TEXT), keep, by)


def test_healing_lowers_the_loss_and_leaves_the_source_alone() -> None:
    subject = OwnSubject(random_own("hc", 4).float(), "test")
    before = {name: one.clone() for name, one in subject.model.state_dict().items()}
    # one text again and again: what is trained on is what is measured
    text = in_batches(rows((16,)) * 8, 2)
    small, found = prune(subject, text, 3, "loss", HealConfig(steps=20, learning_rate=1e-2))
    assert found.loss_healed is not None
    assert found.loss_healed < found.loss_after - 0.5
    assert len(found.heal_losses) == 20
    assert found.text.documents == 4
    for name, one in subject.model.state_dict().items():
        assert torch.equal(one, before[name])
    assert all(one.grad is None or not one.requires_grad for one in small.module.parameters())


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(tmp_path / "cache"))
    write_text(tmp_path)
    sizes = ["shape.layers=3", "shape.width=16", "shape.heads=2", "shape.ffn=24"]
    short = ["train.length=16", "train.sequences=4", "train.tokens=512"]
    text = f'data.paths=["{tmp_path / "words.txt"}"]'
    more = ["train.validation_tokens=256", "design=attnres", "--out", str(tmp_path)]
    assert execute(["train", *sizes, *short, text, *more]) == 0
    return tmp_path / "run"


def test_the_command(trained: Path, tmp_path: Path, capsys: Capture) -> None:
    asked = ["prune", str(trained), "--keep", "2", "--tokens", "256", "--length", "16"]
    capsys.readouterr()
    assert execute([*asked, "--out", str(tmp_path / "small"), "--json"]) == 0
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    fits("pruned-into", said)
    assert json.loads((tmp_path / "small" / "prune.json").read_text()) == {
        k: v for k, v in said.items() if k != "folder"
    }
    assert depthbench.load(tmp_path / "small").layers == 2
    assert execute(["generate", str(tmp_path / "small"), "--prompt", "a", "--tokens", "4"]) == 0
    capsys.readouterr()
    for arguments, words in (
        ([*asked, "--out", str(tmp_path / "small")], "exists and is not empty"),
        ([*asked[:3], "9", "--out", str(tmp_path / "other")], "Keep 1 to 2"),
        ([*asked, "--by", "size", "--out", str(tmp_path / "other")], "unknown way to choose"),
        ([*asked, "--tokens", "many", "--out", str(tmp_path / "other")], "tokens = 'many'"),
    ):
        assert execute(arguments) == 2
        error = capsys.readouterr().err
        assert words in error
        assert len(error.splitlines()) == 1
    assert not (tmp_path / "other").exists()
