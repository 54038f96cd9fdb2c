"""What ``depthbench streams`` is pointed at: one model, a trial to train on, results of before."""

from pathlib import Path

import typer

from depthbench.cli.targets import Target, targets
from depthbench.errors import DepthbenchError
from depthbench.probes.load import folder_of, load
from depthbench.probes.study import trials_of
from depthbench.probes.subject import Subject
from depthbench.probes.text import Text
from depthbench.redundancy import PROBES as OTHERS
from depthbench.streams import FOLDER, ORDER
from depthbench.streams.sample import FEWEST, too_short

NAMES = frozenset((*ORDER, *(one.name for one in OTHERS)))
"""Of results, by which a folder of them is known."""


def one_model(model: str, out: Path | None) -> Target:
    """The model and the folder of its results.

    Raises `DepthbenchError` for a study, and names a trial of it that has several streams.
    """
    refuse_study(model)
    [target] = targets([model], out, FOLDER)
    return target


def refuse_study(model: str) -> None:
    """Raise `DepthbenchError` if ``model`` is a study: one model is wanted, with streams."""
    folder = folder_of(model)
    if not (folder / "trials").is_dir():
        return
    for row in trials_of(folder):
        trial = folder / "trials" / row.id
        try:
            streams = load(trial).facts.streams
        except DepthbenchError:
            continue
        if streams > 1:
            raise DepthbenchError(f"{folder} is a study. Name one of its trials, such as {trial}")
    raise DepthbenchError(
        f"{folder} is a study, and none of its best trials has weights and several streams. Name "
        "a trial of hc, mhc, cascade or resi_dual"
    )


def check_trial(model: str, instead: str = "") -> None:
    """Raise `DepthbenchError` unless ``model`` can be trained on; nothing is loaded.

    ``instead`` is what else the user may do.
    """
    if not (folder_of(model) / "checkpoints").is_dir():
        raise DepthbenchError(
            f"{model}: only a run or trial of this package can be trained on, for its recipe and "
            f"data are known. {instead}{'n' if instead else 'N'}ame the folder of a run"
        )


def check_tokens(tokens: int) -> None:
    """Raise `DepthbenchError` for fewer tokens than anything can be said of; nothing is loaded."""
    if tokens <= FEWEST:
        raise DepthbenchError(
            f"tokens = {tokens}: more than {FEWEST} are needed to say anything of streams. Ask for "
            "more, such as --tokens 16k"
        )


def check_text(subject: Subject, text: Text, asked: int) -> None:
    """Raise `DepthbenchError` if a model with streams has too little text to be measured on."""
    if subject.facts.streams > 1 and text.facts.predicted < FEWEST:
        raise too_short(text.facts, text.facts.predicted, asked)


def held(model: str) -> list[Target]:
    """Where the results of a model or of a study's models lie.

    In a folder of results, in folders inside it, or beside what they are of. Raises
    `DepthbenchError` where there are none.
    """
    folder = folder_of(model)
    if folder.is_dir() and not any((folder / one).is_dir() for one in ("trials", "checkpoints")):
        if _holds(folder):
            return [Target(model, folder)]
        inner = [one for one in sorted(folder.iterdir()) if one.is_dir() and _holds(one)]
        if inner:
            return [Target(str(one), one, folder, folder) for one in inner]
    every = list(targets([model], out=None, kind=FOLDER))
    found = [one for one in every if _holds(one.folder)]
    if not found:
        raise DepthbenchError(_nothing(model, folder, every))
    if len(found) < len(every):
        few = f"{len(found)} of {len(every)} trials"
        typer.echo(f"{folder}: {few} were diagnosed; the others are left out.", err=True)
    return found


def _holds(folder: Path) -> bool:
    return folder.is_dir() and any((folder / f"{name}.json").is_file() for name in NAMES)


def _nothing(model: str, folder: Path, every: list[Target]) -> str:
    first = f"Run depthbench streams diagnose {model} first"
    if every and every[0].study is not None:
        return f"{folder}: none of its best trials was diagnosed. {first}"
    if not folder.exists():
        return (
            f"{model} is not there, and {every[0].folder} holds no results of a model of that "
            f"name. Name a run, a study or a folder of results; or {first[0].lower()}{first[1:]}"
        )
    return f"{every[0].folder} holds no results. {first}"
