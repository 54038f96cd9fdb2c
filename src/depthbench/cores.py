"""How many processes of one thread can run at once."""

import os


def cores() -> int:
    """That this process may use: a container, Slurm or ``taskset`` may leave it fewer than all."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1
