"""One thread, and run-time checks of every annotated shape in the numeric core."""

import torch
from jaxtyping import install_import_hook

# Installed before anything imports these packages, and for the whole session.
install_import_hook(["depthbench.nn", "depthbench.designs"], "beartype.beartype")

torch.set_num_threads(1)
