"""A design of your own: the one class that a Python file defines."""

import hashlib
import importlib.util
import inspect
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from depthbench.designs.base import Card, Design, DesignConfig
from depthbench.errors import DepthbenchError

TOLD = re.compile(r'File "([^"\n]+)", line (\d+)')


def read_design(path: Path) -> type[Design[Any]]:
    """The design that the file at ``path`` defines; the file is run, as any module is.

    Raises `DepthbenchError` if it cannot be run, or defines not exactly one complete design.
    """
    module = _run(path)
    found = [
        kind
        for kind in vars(module).values()
        if inspect.isclass(kind)
        and issubclass(kind, Design)
        and kind.__module__ == module.__name__
        and not inspect.isabstract(kind)
    ]
    if len(found) != 1:
        raise DepthbenchError(f"{path} {_found(module, found)}")
    _check_facts(path, found[0])
    return found[0]


def _run(path: Path) -> ModuleType:
    """The file as a module; the same text at the same place is run once."""
    if path.is_dir():
        raise DepthbenchError(f"{path} is a folder. Name the Python file in it")
    if not path.is_file():
        raise DepthbenchError(f"{path}: no such file. Name a Python file that defines a design")
    name = _module_name(path)
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise DepthbenchError(f"{path} is no Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    # dataclasses, pydantic and pickle look their module up by name
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise failed(path, error) from None
    return module


def _module_name(path: Path) -> str:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise DepthbenchError(f"{path} cannot be read: {error.strerror or error}") from None
    mark = hashlib.sha256(bytes(path.resolve()) + b"\0" + text).hexdigest()[:12]
    return re.sub(r"\W", "_", f"depthbench_own_{path.stem}_{mark}")


def failed(path: Path, error: BaseException) -> DepthbenchError:
    """What went wrong in the file at ``path``, with the line in it."""
    line = line_of(error, path)
    place = "" if line is None else f", line {line}"
    said = " ".join(str(error).split())
    return DepthbenchError(f"{path}{place}: {type(error).__name__}: {said}")


def line_of(error: BaseException, path: Path) -> int | None:
    """The innermost line of the file at ``path`` that ``error`` came through."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [(frame.filename, frame.lineno) for frame in frames]
    # torch's compiler names the place in its message
    places += [(file, int(line)) for file, line in TOLD.findall(str(error))]
    if isinstance(error, SyntaxError):
        places.append((error.filename or "", error.lineno))
    lines = [line for file, line in places if line and Path(file).resolve() == path.resolve()]
    return lines[-1] if lines else None


def _found(module: ModuleType, found: list[type]) -> str:
    if found:
        names = ", ".join(kind.__name__ for kind in found)
        return f"defines {len(found)} designs ({names}). Keep one in a file"
    for kind in vars(module).values():
        if (
            inspect.isclass(kind)
            and issubclass(kind, Design)
            and kind.__module__ == module.__name__
            and inspect.isabstract(kind)
        ):
            missing = ", ".join(sorted(kind.__abstractmethods__))
            return f"defines design {kind.__name__} without {missing}. Add these methods"
    return "defines no design. Derive one class from depthbench.designs.base.Design or TensorDesign"


def _check_facts(path: Path, kind: type[Design[Any]]) -> None:
    """Raise `DepthbenchError` unless config and card are there."""
    facts = vars(kind)
    config, card = facts.get("Config"), facts.get("card")
    if not (inspect.isclass(config) and issubclass(config, DesignConfig)):
        raise DepthbenchError(
            f"{path}: {kind.__name__} has no Config. Write Config = a class derived from "
            "DesignConfig"
        )
    name = config.model_fields["name"].default
    if not isinstance(name, str):
        raise DepthbenchError(
            f'{path}: {config.__name__} names no design. Write name: str = "mine" in it'
        )
    if not isinstance(card, Card):
        raise DepthbenchError(
            f"{path}: {kind.__name__} has no card. Write card: ClassVar[Card] = Card(...)"
        )
    for field in ("family", "sources", "weights", "own", "equation", "paper"):
        value = vars(card)[field]
        if not isinstance(value, str):
            raise DepthbenchError(
                f"{path}: the card of {kind.__name__} has {field} = {value!r}, but text is needed"
            )
