"""Hugging Face libraries without their talk."""

from collections.abc import Iterator
from contextlib import contextmanager

from depthbench.errors import DepthbenchError

EXTRA = "pip install 'depthbench[huggingface]'"


@contextmanager
def quiet() -> Iterator[None]:
    """Within it, the libraries say nothing but errors, and draw no bars.

    Raises `DepthbenchError` where transformers is not installed.
    """
    try:
        import huggingface_hub.utils as hub
        from transformers.utils import logging
    except ImportError:
        raise DepthbenchError(
            f"models of Hugging Face need the package transformers. Run {EXTRA}"
        ) from None
    level, bars, hub_bars = (
        logging.get_verbosity(),
        logging.is_progress_bar_enabled(),
        hub.are_progress_bars_disabled(),
    )
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    hub.disable_progress_bars()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
        if not hub_bars:
            hub.enable_progress_bars()
