"""Models of other packages, read and written in their formats; ours as Hugging Face's models.

``from depthbench.hub import DepthBenchForCausalLM`` or ``depthbench.hub.register()`` makes the Auto
classes of transformers know ours; importing this package alone loads nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from depthbench.hub.convert import convert as convert
    from depthbench.hub.llama import export_llama as export_llama
    from depthbench.hub.llama_in import import_llama as import_llama
    from depthbench.hub.wrapper import DepthBenchConfig as DepthBenchConfig
    from depthbench.hub.wrapper import DepthBenchForCausalLM as DepthBenchForCausalLM

PLACES = {
    "DepthBenchConfig": "wrapper",
    "DepthBenchForCausalLM": "wrapper",
    "export_llama": "llama",
    "import_llama": "llama_in",
    "convert": "convert",
}
"""Module of each name that is imported at first use: transformers takes seconds."""


def register() -> None:
    """Make ``AutoConfig`` and ``AutoModelForCausalLM`` open folders of ours.

    Raises `DepthbenchError` where transformers is not installed.
    """
    from depthbench.probes.hf_quiet import quiet

    with quiet():
        from depthbench.hub.wrapper import register

        register()


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    register()
    return vars(importlib.import_module(f"{__name__}.{PLACES[name]}"))[name]
