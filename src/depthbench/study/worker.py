"""One trial in a process of its own."""

import os
import signal
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

from depthbench.data.dataset import Dataset
from depthbench.errors import DepthbenchError
from depthbench.files import write_atomic
from depthbench.machine import prepare_process
from depthbench.train.config import TrialConfig
from depthbench.train.loop import Trial
from depthbench.train.outcome import Outcome
from depthbench.train.stop import Stop

Message = tuple[int, int] | Outcome | str
"""Progress (steps, tokens); or how the trial ended; or why it failed."""


def work(channel: Connection, config: TrialConfig, data: Path, folder: Path, slot: int) -> None:
    """Train ``config`` and send messages; ends quietly when the study that started it is gone.

    Goes on from the trial's last checkpoint. SIGTERM lets it write one and end.
    """
    stopping = Stop()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, stopping)
    if config.train.device == "cuda":
        os.environ["CUDA_VISIBLE_DEVICES"] = _visible(slot)
    prepare_process(threads=1)
    (folder / "error.txt").unlink(missing_ok=True)
    try:
        # the study has read every shard when it began
        trial = Trial(config, Dataset.open(data, content=False), folder)
        channel.send(
            trial.run(
                lambda steps, tokens: channel.send((steps, tokens)), resume=True, stop=stopping
            )
        )
    except BrokenPipeError:
        return
    except DepthbenchError as error:
        channel.send(str(error))
    except Exception as error:
        write_atomic(folder / "error.txt", traceback.format_exc())
        channel.send(f"{type(error).__name__}: {error} (see {folder / 'error.txt'})")


def _visible(slot: int) -> str:
    """The GPU of this slot, among those that the study may see."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return given.split(",")[slot] if given else str(slot)
