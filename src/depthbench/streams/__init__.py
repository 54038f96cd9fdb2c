"""Residual streams: which carry information, which can go, and merging them."""

from depthbench.probes.probe import Probe
from depthbench.streams.ablation import Ablation, AblationPart
from depthbench.streams.information import Information
from depthbench.streams.retrained import Retrained, RetrainedPart
from depthbench.streams.shared import Shared
from depthbench.streams.verdict import Verdict

PROBES: tuple[type[Probe], ...] = (Information, Shared, Ablation)
"""What ``diagnose`` measures of streams."""
ORDER: tuple[str, ...] = (
    Verdict.name,
    "merge",
    *(one.name for one in (Information, Shared, Ablation, Retrained, AblationPart, RetrainedPart)),
)
"""On a page."""
FOLDER = "streams"
"""Of results, beside the model that they are of."""
