"""One tiny dataset for all tests of training."""

import pytest

from depthbench.data.dataset import Dataset
from tests.small import make_dataset


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """20 kB of seeded words as bytes."""
    return make_dataset(tmp_path_factory.mktemp("train"))
