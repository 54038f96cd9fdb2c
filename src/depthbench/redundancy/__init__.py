"""Redundancy beside that of streams: layers, experts and branches that do what others do."""

from depthbench.probes.probe import Probe
from depthbench.redundancy.collapse import Collapse
from depthbench.redundancy.experts import Experts
from depthbench.redundancy.overlap import Overlap

PROBES: tuple[type[Probe], ...] = (Collapse, Experts, Overlap)
REGISTRY: dict[str, type[Probe]] = {probe.name: probe for probe in PROBES}
