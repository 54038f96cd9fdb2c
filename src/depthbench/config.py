"""Small frozen configs: unknown keys are errors, every value is checked where it is declared."""

import copy
import hashlib
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, get_args

import tomli_w
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_serializer,
)
from pydantic_core import ErrorDetails

from depthbench.errors import DepthbenchError, nearest

SEEDS = 2**63
"""Seeds lie below it: what generators of torch, numpy and Python all take."""
Seed = Annotated[int, Field(ge=0, lt=SEEDS)]
EVERY = {"later": True}
"""Context of a dump that leaves nothing out."""
PLAIN = {
    "tuple_type": "a list is needed here, such as [1, 2]",
    "string_type": "text in quotes is needed here",
    "model_type": "a table of settings is needed here",
}
"""Words for mistakes that pydantic names by types of Python."""


class Frozen(BaseModel):
    """Base of every config: immutable, no unknown keys, no silent conversion of text or truth.

    A whole float such as ``2e5`` is a whole number; ``"8"`` and ``true`` are none.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True
    )
    later: ClassVar[frozenset[str]] = frozenset()
    """Fields that came after configs had been stored: written only away from their default, so that
    digests of those configs stay."""

    @field_validator("*", mode="wrap")
    @classmethod
    def _as_given(cls, value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        result = handler(value)
        if result is not value:
            _refuse_conversion(value, result)
        return result

    @model_serializer(mode="wrap")
    def _without_later(
        self, handler: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, Any]:
        found: dict[str, Any] = handler(self)
        if info.context is EVERY:
            return found
        fields = type(self).model_fields
        silent = {name for name in self.later if vars(self)[name] == fields[name].default}
        return {name: value for name, value in found.items() if name not in silent}

    @classmethod
    def parse(cls, data: Any, where: str = "") -> Self:
        """Validate ``data``; the first mistake becomes a one-line `DepthbenchError`."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise DepthbenchError(explain(error, cls, where)) from None

    def resolved(self) -> dict[str, Any]:
        """Every field, defaults included but those of `later`, as plain JSON data."""
        return self.model_dump(mode="json")

    def all_fields(self) -> dict[str, Any]:
        """Every field as plain JSON data, those of `later` too."""
        return self.model_dump(mode="json", context=EVERY)

    def digest(self) -> str:
        """Twelve hexadecimal digits that identify the resolved config."""
        return digest_of(self.resolved())


def _open_to_options(schema: dict[str, Any], cls: type[BaseModel]) -> None:
    """The schema of a base allows what the kinds that stand in its place have."""
    if cls.__subclasses__():
        schema["additionalProperties"] = True


class Named(Frozen):
    """A config that is one of several kinds, each named by the default of its ``name``."""

    model_config = ConfigDict(json_schema_extra=_open_to_options)
    holds: ClassVar[str] = "settings"
    """What its other fields are called in errors."""
    name: str
    """Which kind."""

    @field_validator("name")
    @classmethod
    def _own_name(cls, value: str) -> str:
        own = cls.model_fields["name"].default
        if value != own:
            raise ValueError(f"these are the {cls.holds} of '{own}'. Write name = \"{own}\"")
        return value


def by_name(parse: Callable[[Any], Any]) -> BeforeValidator:
    """Lets a field take what ``parse`` takes; its `DepthbenchError` is the field's mistake."""

    def parsed(value: Any) -> Any:
        try:
            return parse(value)
        except DepthbenchError as error:
            raise ValueError(str(error)) from None

    return BeforeValidator(parsed)


def _refuse_conversion(given: Any, result: Any) -> None:
    """Raise `ValueError` where text or true/false became a number, or a number true/false."""
    if given is result:
        return
    if isinstance(given, dict) and isinstance(result, dict):
        given, result = list(given.values()), list(result.values())
    if isinstance(given, list | tuple) and isinstance(result, list | tuple):
        for one, other in zip(given, result, strict=False):
            _refuse_conversion(one, other)
        return
    if isinstance(result, bool):
        if not isinstance(given, bool):
            raise ValueError("true or false is needed here, without quotes")
    elif isinstance(result, int | float) and isinstance(given, bool | str):
        raise ValueError("a number is needed here, without quotes")


def digest_of(data: Any) -> str:
    """Twelve hexadecimal digits of the SHA-256 of ``data`` as canonical JSON."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def explain(error: ValidationError, model: type[BaseModel], where: str = "") -> str:
    """One line for the first mistake: field, value, what is allowed, the nearest match."""
    errors = _own_mistakes(error.errors(include_url=False))
    # a misspelt key is also a missing one: the misspelling is the mistake
    misspelt = (one for one in errors if one["type"] == "extra_forbidden")
    first = next(misspelt, errors[0])
    field = ".".join(str(part) for part in first["loc"])
    place = f"{where}: " if where else ""
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{place}{_reason(first, field, model)}{more}".replace("\n", " ")


def _own_mistakes(errors: list[ErrorDetails]) -> list[ErrorDetails]:
    """Without lists that are too short only because all they held was wrong."""
    places = [one["loc"] for one in errors]

    def follows(one: ErrorDetails) -> bool:
        here = one["loc"]
        inner = [loc for loc in places if loc[: len(here)] == here and loc != here]
        return one["type"] == "too_short" and bool(inner)

    return [one for one in errors if not follows(one)]


def _reason(first: ErrorDetails, field: str, model: type[BaseModel]) -> str:
    if first["type"] == "extra_forbidden":
        allowed = _fields_at(model, first["loc"][:-1])
        key = str(first["loc"][-1])
        return f"unknown key '{field}'{nearest(key, allowed) or '.'} Allowed: {', '.join(allowed)}"
    if first["type"] == "missing":
        return f"'{field}' is missing: add it"
    message = PLAIN.get(first["type"], first["msg"].removeprefix("Value error, "))
    if not field:
        return message
    if isinstance(first["input"], dict | BaseModel):
        return f"{field}: {message}"
    return f"{field} = {first['input']!r}: {message[0].lower()}{message[1:]}"


def _fields_at(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """Field names of the nested model at ``path``."""
    for part in path:
        field = model.model_fields.get(str(part))
        for inner in _models_in(field.annotation) if field else ():
            model = inner
    return sorted(model.model_fields)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models that an annotation such as ``tuple[Sizes, ...] | None`` names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file; errors name the file and the line."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DepthbenchError(f"{path}: no such file. Check the path of the study file") from None
    except IsADirectoryError:
        raise DepthbenchError(f"{path} is a folder. Name the .toml file inside it") from None
    except OSError as error:
        raise DepthbenchError(
            f"{path} cannot be read: {error.strerror or error}. Name a study file"
        ) from None
    except UnicodeDecodeError:
        raise DepthbenchError(f"{path} is no UTF-8 text. A study file is TOML") from None
    except tomllib.TOMLDecodeError as error:
        raise DepthbenchError(f"{path} is no valid TOML: {error}. Mend that line") from None


def to_toml(data: dict[str, Any]) -> str:
    """``data`` as TOML, which has no null: what is None is left out, and None is its default."""
    return tomli_w.dumps(_without_none(data))


def _without_none(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _without_none(v) for key, v in data.items() if v is not None}
    if isinstance(data, list):
        return [_without_none(v) for v in data]
    return data


def override(data: dict[str, Any], assignments: list[str]) -> dict[str, Any]:
    """``data`` with dotted ``key=value`` assignments applied; values are TOML, else strings."""
    result = copy.deepcopy(data)
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not key.strip():
            raise DepthbenchError(
                f"override '{assignment}' is no key=value. Example: train.sequences=8"
            )
        *parents, leaf = key.strip().split(".")
        table = result
        for parent in parents:
            table = table.setdefault(parent, {})
            if not isinstance(table, dict):
                raise DepthbenchError(
                    f"override '{assignment}': '{parent}' is no table of settings. "
                    "Give its whole value: key=[...]"
                )
        table[leaf] = _toml_value(text.strip())
    return result


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
