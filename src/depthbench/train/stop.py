"""A wish to stop, as a signal brings it: training ends after the step in work."""

from types import FrameType


class Stop:
    """A handler for signals that only remembers; ask it by calling it without arguments."""

    def __init__(self) -> None:
        self.wished = False

    def __call__(self, number: int | None = None, frame: FrameType | None = None) -> bool:
        self.wished = self.wished or number is not None
        return self.wished
