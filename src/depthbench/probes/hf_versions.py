"""What differs between the versions of transformers that we work with, in one place."""

from typing import Any


def rotary_settings(parameters: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a config that say ``rope_parameters``, as transformers 5 has them."""
    if not before_5():
        return {"rope_parameters": parameters}
    scaling = {key: value for key, value in parameters.items() if key != "rope_theta"}
    plain = scaling["rope_type"] == "default"
    return {"rope_theta": parameters["rope_theta"], "rope_scaling": None if plain else scaling}


def rotary_parameters(settings: dict[str, Any]) -> dict[str, Any]:
    """``rope_parameters`` of a config's settings, as transformers 5 has them."""
    if not before_5():
        return settings.get("rope_parameters") or {}
    given: dict[str, Any] = settings.get("rope_scaling") or {}
    beside = ("rope_theta", "partial_rotary_factor")
    found = {key: settings[key] for key in beside if settings.get(key) is not None}
    return {"rope_type": given.get("type", "default")} | found | given


def before_5() -> bool:
    """Whether transformers 4 is installed."""
    # it takes seconds to import
    import transformers
    from packaging.version import Version

    return Version(transformers.__version__) < Version("5")
