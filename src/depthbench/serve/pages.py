"""The pages of a folder of studies, made anew when what they show has changed."""

import threading
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from depthbench.config import digest_of
from depthbench.errors import DepthbenchError
from depthbench.report.html import render, render_plain
from depthbench.report.study import load
from depthbench.watch.place import View, Watched

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


class Pages:
    """Read-only: nothing is written to the studies' folders."""

    def __init__(self, root: Path) -> None:
        """``root`` is a study, or a folder of studies.

        Raises `DepthbenchError` where there is neither.
        """
        if not root.is_dir():
            raise DepthbenchError(f"{root}: no such folder. Name a folder of studies, such as runs")
        self.root = root
        self._lock = threading.Lock()
        self._made: dict[str, tuple[str, Answer]] = {}
        self._watched: dict[str, Watched] = {}

    def studies(self) -> dict[str, Path]:
        """By the name in their address: those that are there now."""
        if (self.root / STUDY).is_file():
            return {self.root.resolve().name: self.root}
        found = sorted(path.parent for path in self.root.glob(f"*/{STUDY}"))
        return {folder.name: folder for folder in found}

    def answer(self, path: tuple[str, ...]) -> Answer:
        """For an address, in its parts."""
        if path == ():
            return self._index()
        if path == ("version",):
            return self._text(self._all_versions())
        folder = self.studies().get(path[0])
        if folder is None:
            return self._lost(f"There is no study '{path[0]}' here.")
        rest = path[1:]
        if rest in ((), ("report.html",)):
            return self._report(path[0], folder)
        if rest == ("version",):
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
            try:
                made = self._page(render(load(folder), target=folder, version=version))
            except DepthbenchError as error:
                made = self._page(
                    render_plain("live.html", version, name=name, why=str(error), studies=[])
                )
            self._made[name] = (version, made)
            return made

    def _all_versions(self) -> str:
        return digest_of([self.version(one) for one in self.studies().values()])

    def _index(self) -> Answer:
        version = self._all_versions()
        lines: list[tuple[str, str, View | None, str]] = []
        for name, folder in self.studies().items():
            try:
                watched = self._watched.setdefault(name, Watched(folder))
                with self._lock:
                    lines.append((name, quote(name), watched.look(), ""))
            except DepthbenchError as error:
                lines.append((name, quote(name), None, str(error)))
        return self._page(render_plain("live.html", version, name="", why="", studies=lines))

    def _file(self, folder: Path, rest: tuple[str, ...]) -> Answer:
        """A page or figure inside the study's folder, and nothing else."""
        path = folder.joinpath(*rest).resolve()
        inside = path.is_relative_to(folder.resolve())
        if not inside or path.suffix not in SHOWN or not path.is_file():
            return self._lost("There is no such page here.")
        return Answer(path.read_bytes(), SHOWN[path.suffix])

    def _lost(self, why: str) -> Answer:
        page = self._page(render_plain("live.html", "", name="", why=why, studies=[]))
        return Answer(page.body, page.kind, 404)

    @staticmethod
    def _page(text: str) -> Answer:
        return Answer(text.encode())

    @staticmethod
    def _text(text: str) -> Answer:
        return Answer(text.encode(), "text/plain; charset=utf-8")
