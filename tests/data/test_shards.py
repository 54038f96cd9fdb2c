from pathlib import Path

import numpy as np
import pytest

from depthbench.data.shards import Numbers, token_dtype, write_shard


def test_shards_read_as_one(tmp_path: Path) -> None:
    parts = [np.arange(7), np.arange(100, 101), np.arange(200, 205)]
    shards = [write_shard(tmp_path / f"{n}.bin", [part], "<u4") for n, part in enumerate(parts)]
    whole = np.concatenate(parts)
    found = Numbers(tmp_path, shards)
    assert len(found) == len(whole)
    for start in range(len(whole)):
        for length in range(1, len(whole) - start + 1):
            window = found.window(start, length)
            assert window.tolist() == whole[start : start + length].tolist()
            assert window.dtype == np.int64


@pytest.mark.parametrize(("vocab", "dtype"), [(257, "<u2"), (65536, "<u2"), (65537, "<u4")])
def test_the_narrowest_type(vocab: int, dtype: str) -> None:
    assert token_dtype(vocab) == dtype
    assert np.array([vocab - 1]).astype(dtype).tolist() == [vocab - 1]
