"""Every registered design, and every option of it away from its default, one at a time.

Derived from the registry and the fields of each config, so a new design or option is under all
laws without a line here.
"""

from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from depthbench.designs import REGISTRY, label_of, parse_design
from depthbench.designs.base import DesignConfig


def alternatives(annotation: Any, default: Any) -> list[Any]:
    """Other values of an option: all of a closed set; 3 of a count; twice a factor, or 0.5."""
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
    if get_origin(annotation) in (Union, UnionType) and len(kinds) == 1:
        annotation = kinds[0]
    if annotation is bool:
        return [not default]
    if get_origin(annotation) is Literal:
        return [value for value in get_args(annotation) if value != default]
    if annotation is int:
        return [3]
    if annotation is float:
        return [2 * default if default else 0.5]
    raise TypeError(f"no alternative to an option of type {annotation}: teach `alternatives`")


def variants_of(name: str) -> list[DesignConfig]:
    """The default, then each alternative value of each option, then what the config notes.

    An option that not every small model can have names its alternatives in its field's examples.
    """
    configs = [parse_design(name)]
    for option, field in REGISTRY[name].Config.model_fields.items():
        if option != "name":
            configs += [
                parse_design({"name": name, option: value})
                for value in field.examples or alternatives(field.annotation, field.default)
            ]
    notable = REGISTRY[name].Config.notable()
    return configs + [parse_design({"name": name, **options}) for options in notable]


DEFAULTS = {name: parse_design(name) for name in REGISTRY}
VARIANTS = {label_of(config): config for name in REGISTRY for config in variants_of(name)}
