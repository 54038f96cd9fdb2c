"""The pages of a folder of studies, made anew when what they show has changed."""

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from depthbench.config import digest_of
from depthbench.errors import DepthbenchError, printable
from depthbench.report.html import render, render_plain
from depthbench.report.study import load
from depthbench.watch.place import View, Watched

logger = logging.getLogger(__name__)
VERSION = "version"
STUDY = "study.toml"
SHOWN = {".html": "text/html; charset=utf-8", ".png": "image/png", ".svg": "image/svg+xml"}
"""Files beside a study's report that its pages link to."""
WATCHED = ("study.toml", "results.jsonl", "status.json", "serving.json", "probes", "streams")
DEEP = ("probes/*/*.json", "streams/*/*.json", "results/*/eval.json")


@dataclass(frozen=True)
class Answer:
    """What is sent back."""

    body: bytes
    kind: str = SHOWN[".html"]
    status: int = 200
    place: str | None = None
    """Where to ask instead."""


class Pages:
    """Read-only: nothing is written to the studies' folders."""

    def __init__(self, root: Path) -> None:
        """``root`` is a study, or a folder of studies, which may come later.

        Raises `DepthbenchError` where there is no such folder.
        """
        if not root.is_dir():
            raise DepthbenchError(f"{root}: no such folder. Name a folder of studies, such as runs")
        self.root = root
        self._lock, self._looking = threading.Lock(), threading.Lock()
        self._made: dict[str, tuple[str, Answer]] = {}
        self._watched: dict[str, Watched] = {}
        self._said: set[str] = set()

    def studies(self) -> dict[str, Path]:
        """By the name in their address: those that are there now."""
        if (self.root / STUDY).is_file():
            return {self.root.resolve().name: self.root}
        found = sorted(path.parent for path in self.root.glob(f"*/{STUDY}"))
        return {folder.name: folder for folder in found}

    def answer(self, path: tuple[str, ...], slash: bool = True) -> Answer:
        """For an address, in its parts; ``slash``: whether it ends in one.

        What nobody foresaw is a page too, and one line of the log.
        """
        try:
            return self._answer(path, slash)
        except Exception as error:
            return self._broken("/".join(path), "", error)

    def _answer(self, path: tuple[str, ...], slash: bool) -> Answer:
        if path == ():
            return self._index()
        # a study may have that name: its page ends in a slash
        if path == (VERSION,) and not slash:
            return self._text(digest_of(_plain("", studies=self._look())))
        folder = self.studies().get(path[0])
        if folder is None:
            return self._lost(f"There is no study '{path[0]}' here.")
        rest = path[1:]
        if rest == () and not slash:
            # links of the page are of its folder
            return Answer(b"", status=302, place=f"/{quote(path[0], safe='')}/")
        if rest in ((), ("report.html",)):
            return self._report(path[0], folder)
        if rest == (VERSION,):
            return self._text(self.version(folder))
        return self._file(folder, rest)

    def version(self, folder: Path) -> str:
        """Changes with whatever a study's page shows."""
        paths = [folder / name for name in WATCHED]
        paths += [path for pattern in DEEP for path in sorted(folder.glob(pattern))]
        marks: list[tuple[str, int, int]] = []
        for path in paths:
            try:
                facts = path.stat()
            except OSError:
                continue
            marks.append((str(path), facts.st_mtime_ns, facts.st_size))
        return digest_of(marks)

    def _report(self, name: str, folder: Path) -> Answer:
        version = self.version(folder)
        # one page at a time: two readers of a new trial do not make it twice
        with self._lock:
            known = self._made.get(name)
            if known is not None and known[0] == version:
                return known[1]
            # what went wrong is not kept: a file that is mended need not be one of the version's
            try:
                made = self._page(render(load(folder), target=folder, version=version))
            except DepthbenchError as error:
                return self._page(_plain(version, name=name, why=str(error)))
            except Exception as error:
                return self._broken(name, version, error)
            self._made[name] = (version, made)
            return made

    def _index(self) -> Answer:
        studies = self._look()
        # made from what it shows, which is more than files' times tell: a process may have ended
        version = digest_of(_plain("", studies=studies))
        return self._page(_plain(version, studies=studies))

    def _look(self) -> list[tuple[str, str, View | None, str]]:
        """Name, address and view of every study, or why there is none."""
        found: list[tuple[str, str, View | None, str]] = []
        with self._looking:
            for name, folder in self.studies().items():
                address = quote(name, safe="")
                try:
                    if name not in self._watched:
                        self._watched[name] = Watched(folder)
                    found.append((name, address, self._watched[name].look(), ""))
                except DepthbenchError as error:
                    found.append((name, address, None, str(error)))
        return found

    def _file(self, folder: Path, rest: tuple[str, ...]) -> Answer:
        """A page or figure inside the study's folder, and nothing else."""
        lost = self._lost("There is no such page here.")
        try:
            path = folder.joinpath(*rest).resolve()
            inside = path.is_relative_to(folder.resolve())
            if not inside or path.suffix not in SHOWN or not path.is_file():
                return lost
            return Answer(path.read_bytes(), SHOWN[path.suffix])
        except (OSError, RuntimeError):
            # gone since, a name that no file can have, or links in a ring
            return lost

    def _lost(self, why: str) -> Answer:
        return Answer(_plain("", why=why).encode(), status=404)

    def _broken(self, what: str, version: str, error: Exception) -> Answer:
        """A page, and a line of the log, of an error that nobody foresaw."""
        why = one_line(f"{type(error).__name__}: {error}")
        line = f"the page '{one_line(what)}' cannot be made: {why}"
        # a page that polls would say it every few seconds
        if line not in self._said:
            self._said.add(line)
            logger.error(line)
        text = (
            f"This page cannot be made: {why}. A file of the study is not as depthbench writes it, "
            "or depthbench has a fault"
        )
        return Answer(_plain(version, name=what, why=text).encode(), status=500)

    @staticmethod
    def _page(text: str) -> Answer:
        return Answer(text.encode())

    @staticmethod
    def _text(text: str) -> Answer:
        return Answer(text.encode(), "text/plain; charset=utf-8")


def one_line(text: str) -> str:
    """For a log: no control characters either."""
    return printable(" ".join(text.split()))


def _plain(
    version: str,
    *,
    name: str = "",
    why: str = "",
    studies: Sequence[tuple[str, str, View | None, str]] = (),
) -> str:
    return render_plain("live.html", version, name=name, why=why, studies=studies)
