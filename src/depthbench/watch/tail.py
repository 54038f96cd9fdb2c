"""A file of JSON lines that grows while it is read."""

import json
from pathlib import Path
from typing import Any


class Tail:
    """Reads what is new; a last line without its end waits for the next time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unread = 0
        """Lines that are no JSON object."""
        self._start_over(None)

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """The new records, and whether they replace all earlier ones.

        They do when another file has taken the place of the one read before, as where a run goes
        on from a checkpoint. Without a file there is nothing new.
        """
        try:
            with self.path.open("rb") as file:
                now = self.path.stat()
                over = self.inode not in (None, now.st_ino) or now.st_size < self.offset
                if over or self.inode is None:
                    self._start_over(now.st_ino)
                file.seek(self.offset)
                new = file.read()
        except OSError:
            return [], False
        whole = new[: new.rfind(b"\n") + 1]
        self.offset += len(whole)
        records = [self._record(line) for line in whole.splitlines() if line.strip()]
        return [record for record in records if record is not None], over

    def _start_over(self, inode: int | None) -> None:
        self.inode, self.offset, self.unread = inode, 0, 0

    def _record(self, line: bytes) -> dict[str, Any] | None:
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if isinstance(record, dict):
            return record
        self.unread += 1
        return None
