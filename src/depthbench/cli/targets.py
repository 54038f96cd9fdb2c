"""What commands that look into models are pointed at, and where their results go."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from depthbench.errors import DepthbenchError
from depthbench.probes.load import folder_of
from depthbench.probes.study import trials_of


class Target(NamedTuple):
    """What is probed, and where its results go."""

    source: str
    folder: Path
    study: Path | None = None
    """Folder of the study that it was named by."""
    page: Path | None = None
    """Folder of the page that shows that study's models side by side."""


def targets(models: Sequence[str], out: Path | None, kind: str) -> Iterator[Target]:
    """Every model with the folder of its results; a study stands for its best trials.

    Results lie in a folder called ``kind``, beside what they are of, or in ``out``.

    Raises `DepthbenchError` for two models whose results would lie in one folder.
    """
    taken: dict[Path, str] = {}
    for model in models:
        own = list(_targets_of(model, out, kind, many=len(models) > 1))
        places = [(one.folder, one.source) for one in own]
        places += [(page, model) for page in {one.page for one in own} if page is not None]
        for folder, source in places:
            if (place := folder.resolve()) in taken:
                raise DepthbenchError(
                    f"the results of {source} and {taken[place]} would both lie in {folder}. "
                    "Name each model once, or probe them with an --out of their own"
                )
            taken[place] = source
        yield from own


def _targets_of(model: str, out: Path | None, kind: str, many: bool) -> Iterator[Target]:
    folder = folder_of(model)
    if (folder / "trials").is_dir():
        rows = trials_of(folder)
        if not rows:
            raise DepthbenchError(f"{folder}: no trial is finished. Train the study first")
        page = folder / kind
        if out is not None:
            page = out / folder.resolve().name if many else out
        for row in rows:
            yield Target(str(folder / "trials" / row.id), page / row.id, folder, page)
    elif (folder / "checkpoints").is_dir():
        own = folder.parents[1] if folder.parent.name == "trials" else None
        place = folder / kind if own is None else own / kind / folder.name
        yield Target(model, place if out is None else (out / folder.name if many else out))
    else:
        # a folder goes by its own name, however it was reached
        whole = folder.resolve().name if folder.exists() else model.strip("/")
        name = whole.replace("/", "--").replace("\\", "--")
        place = Path("runs", kind, name)
        yield Target(model, place if out is None else (out / name if many else out))
