"""Pages of running studies on this machine."""
