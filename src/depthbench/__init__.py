"""Do more layers buy more computation, and which residual connection makes them?"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from depthbench.probes.subject import Subject


def load(source: Any, **options: Any) -> "Subject":
    """The model in a folder or file, ready for probes: see `depthbench.probes.load.load`."""
    # torch takes seconds to import
    from depthbench.probes.load import load

    return load(source, **options)
