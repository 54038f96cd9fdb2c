"""One thread, and run-time checks of every annotated shape in the numeric core."""

import pytest
import torch
from jaxtyping import install_import_hook

# Installed before anything imports these packages, and for the whole session.
install_import_hook(["depthbench.nn", "depthbench.designs"], "beartype.beartype")

torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, beside all others: at the end one process would wait for it."""
    items.sort(key=lambda item: item.get_closest_marker("longest") is None)
