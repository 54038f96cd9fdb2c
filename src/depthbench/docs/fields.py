"""Fields of a config as a reader wants them: kind, limits, default, and their docstrings."""

import ast
import inspect
import itertools
import textwrap
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import annotated_types as limits
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from depthbench.docs.markdown import bound

KINDS: Mapping[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "`true` or `false`",
    Path: "path",
    Any: "anything",
    dict: "table",
}


class Field(NamedTuple):
    """One field of a config."""

    name: str
    kind: str
    """What it takes, in Markdown, limits included."""
    default: str
    meaning: str
    """Its docstring."""


def fields_of(config: type[BaseModel]) -> list[Field]:
    """Fields in order, inherited ones first."""
    words = docstrings_of(config)
    return [
        Field(name, _whole_kind(info), _default(info), words.get(name, ""))
        for name, info in config.model_fields.items()
    ]


def docstrings_of(config: type) -> dict[str, str]:
    """The string below each field, in its class or in the nearest base that has one."""
    found: dict[str, str] = {}
    for kind in reversed(config.__mro__):
        if kind.__module__.startswith("depthbench."):
            tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
            assert isinstance(tree.body[0], ast.ClassDef)
            found |= dict(_strings(tree.body[0].body))
    return found


def _strings(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    for one, following in itertools.pairwise(body):
        if (
            isinstance(one, ast.AnnAssign)
            and isinstance(one.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            yield one.target.id, " ".join(str(following.value.value).split())


def inner_models(config: type[BaseModel]) -> list[type[BaseModel]]:
    """The configs that its fields hold."""
    found = [one for info in config.model_fields.values() for one in _models(info.annotation)]
    return list(dict.fromkeys(found))


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _whole_kind(info: FieldInfo) -> str:
    return ", ".join([kind_of(info.annotation), *_limits(info.metadata)])


def kind_of(annotation: Any) -> str:
    """Words for a type; a config's name links to its section."""
    if annotation in KINDS:
        return KINDS[annotation]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{annotation.__name__}](#{anchor(annotation)})"
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return ", ".join([kind_of(parts[0]), *_limits(parts[1:])])
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in parts)
    if origin in (Union, types.UnionType):
        inner = [kind_of(part) for part in parts if part is not type(None)]
        return " or ".join(dict.fromkeys(inner))
    if origin is tuple and parts[-1] is not Ellipsis:
        return "list of " + " and ".join(map(kind_of, parts))
    if origin in (tuple, list, Sequence):
        return f"list of {kind_of(parts[0])}"
    if origin is dict:
        return f"table of {kind_of(parts[1])}"
    raise TypeError(f"no words for a field of the kind {annotation}")


def anchor(config: type) -> str:
    """The id of a config's heading."""
    return config.__name__.lower()


def _limits(metadata: Sequence[Any]) -> list[str]:
    return [words for one in metadata for words in _limit(one)]


def _limit(one: Any) -> list[str]:
    match one:
        case limits.Ge(ge=value):
            return [bound("≥", value)]
        case limits.Gt(gt=value):
            return [bound(">", value)]
        case limits.Le(le=value):
            return [bound("≤", value)]
        case limits.Lt(lt=value):
            return [bound("<", value)]
        case limits.MinLen(min_length=1):
            return ["not empty"]
        case limits.MinLen(min_length=least):
            return [f"at least {least}"]
        case limits.MaxLen(max_length=most):
            return [f"at most {most} long"]
        case FieldInfo():
            return _limits(one.metadata)
    return []


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "needed"
    value = info.get_default(call_default_factory=True)
    if value is None:
        return ""
    if isinstance(value, BaseModel):
        return "its defaults"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`{list(value)}`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value!r}`"
