"""How much of its depth a model uses."""

from depthbench.errors import DepthbenchError, unknown
from depthbench.probes.ablate import Exit, Prune, Recompute, Repeat
from depthbench.probes.angular import Angular
from depthbench.probes.causal import Causal
from depthbench.probes.cka import CKA
from depthbench.probes.contribution import Contribution
from depthbench.probes.depth import Depth
from depthbench.probes.jacobian import Jacobian
from depthbench.probes.lens import Lens
from depthbench.probes.permutation import Permutation
from depthbench.probes.probe import Probe
from depthbench.probes.rank import Rank
from depthbench.probes.routes import Routes
from depthbench.probes.streams import Streams
from depthbench.probes.usefulness import Usefulness

PROBES: tuple[type[Probe], ...] = (
    Depth,
    Angular,
    Causal,
    Permutation,
    Prune,
    Repeat,
    Recompute,
    Exit,
    Lens,
    Contribution,
    Usefulness,
    Rank,
    CKA,
    Jacobian,
    Routes,
    Streams,
)
REGISTRY: dict[str, type[Probe]] = {probe.name: probe for probe in PROBES}


def parse_probes(text: str) -> list[Probe]:
    """Probes from ``all`` or names with commas.

    Raises `DepthbenchError` for a name that is not there.
    """
    names = [word.strip() for word in text.split(",")]
    if names == ["all"]:
        names = list(REGISTRY)
    for name in names:
        if name not in REGISTRY:
            raise unknown("probe", name, ["all", *REGISTRY])
    if len(set(names)) < len(names):
        raise DepthbenchError(f"--probes {text}: a probe is named twice. Name each once")
    return [REGISTRY[name]() for name in names]
