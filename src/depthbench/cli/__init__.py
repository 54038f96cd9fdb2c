"""The command line."""

from depthbench.cli.app import main

__all__ = ["main"]
