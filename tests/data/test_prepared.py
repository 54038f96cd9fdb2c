"""A prepared folder as the data of a study."""

from pathlib import Path

import pytest
import torch

from depthbench.data.config import DataConfig
from depthbench.data.dataset import find_dataset, prepare
from depthbench.errors import DepthbenchError


@pytest.fixture
def elsewhere(folder: Path, tmp_path: Path) -> Path:
    """A dataset that is in no cache."""
    return prepare(DataConfig(paths=(str(folder),)), tmp_path / "made").folder


def test_a_prepared_folder_is_opened_and_found_again(elsewhere: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    found = prepare(DataConfig(prepared=str(elsewhere)), cache)
    assert found.folder == elsewhere
    again = find_dataset(found.manifest.hash, cache)
    assert again.manifest == found.manifest
    assert torch.equal(again.batch(0, 0, 2, 8)[0], found.batch(0, 0, 2, 8)[0])
    with pytest.raises(DepthbenchError, match=r"not in .* any more"):
        find_dataset("0" * 16, cache)
    (elsewhere / "manifest.json").unlink()
    with pytest.raises(DepthbenchError, match=r"not in .* any more"):
        find_dataset(found.manifest.hash, cache)


def test_no_prepared_folder(tmp_path: Path) -> None:
    with pytest.raises(DepthbenchError, match=r"data\.prepared: .*depthbench data prepare") as seen:
        prepare(DataConfig(prepared=str(tmp_path / "no")), tmp_path / "cache")
    assert "\n" not in str(seen.value)


def test_content_is_checked_unless_it_is_trusted(elsewhere: Path, tmp_path: Path) -> None:
    found = prepare(DataConfig(prepared=str(elsewhere)), tmp_path / "cache")
    shard = elsewhere / found.manifest.domains[0].train[0].file
    shard.write_bytes(b"\1" + shard.read_bytes()[1:])
    type(found).open(elsewhere, content=False)
    with pytest.raises(DepthbenchError, match="not what the manifest says"):
        prepare(DataConfig(prepared=str(elsewhere)), tmp_path / "cache")
    shard.write_bytes(shard.read_bytes()[:-2])
    with pytest.raises(DepthbenchError, match="not what the manifest says"):
        type(found).open(elsewhere, content=False)


@pytest.mark.parametrize(
    ("other", "name"),
    [({"paths": ["a"]}, "paths"), ({"vocab": 300}, "vocab"), ({"domains": ["code"]}, "domains")],
)
def test_prepared_fixes_everything_else(other: dict[str, object], name: str) -> None:
    with pytest.raises(DepthbenchError, match=f"prepared = 'x' fixes {name} too: remove one"):
        DataConfig.parse({"prepared": "x"} | other)
    assert DataConfig.parse({"prepared": "x", "vocab": 2048}).prepared == "x"
