"""What differs between the versions of transformers that we work with, in one place."""

from pathlib import Path
from typing import Any, Literal


def cache_name() -> Literal["cache", "past_key_values"]:
    """What ``generate`` calls the cache that it hands from step to step."""
    return "past_key_values" if before("5.24") else "cache"


def plain_experts() -> dict[str, Any]:
    """Arguments of ``from_pretrained`` that make experts one product after another."""
    return {} if before("5") else {"experts_implementation": "eager"}


def experts_in_turn(model: Any) -> str | None:
    """Compute the experts of ``model`` one after another; what `experts_as_before` is told."""
    if before("5"):
        return None
    kind: str | None = model.get_experts_implementation()
    model.set_experts_implementation("eager")
    return kind


def experts_as_before(model: Any, kind: str | None) -> None:
    """Undo `experts_in_turn`."""
    if not before("5"):
        model.set_experts_implementation(kind)


def mismatched(info: dict[str, Any]) -> list[str]:
    """Weights whose shape is not what the config wants, from the information on loading."""
    keys = sorted(info["mismatched_keys"])
    if before("5"):
        return [f"{name} (its config wants another shape)" for name in keys]
    return [
        f"{name} (it holds {list(held)}, its config wants {list(wanted)})"
        for name, held, wanted in keys
    ]


def name_end(tokenizer: Any, gguf_file: Path) -> None:
    """Give it the token that ends a text: transformers 4 takes the one that begins it."""
    if not before("5"):
        return
    from gguf import GGUFReader

    field = GGUFReader(gguf_file).get_field("tokenizer.ggml.eos_token_id")
    if field is not None:
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(int(field.contents()))


def rotary_settings(parameters: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a config that say ``rope_parameters``, as transformers 5 has them."""
    if not before("5"):
        return {"rope_parameters": parameters}
    scaling = {key: value for key, value in parameters.items() if key != "rope_theta"}
    plain = scaling["rope_type"] == "default"
    return {"rope_theta": parameters["rope_theta"], "rope_scaling": None if plain else scaling}


def rotary_parameters(settings: dict[str, Any]) -> dict[str, Any]:
    """``rope_parameters`` of a config's settings, as transformers 5 has them."""
    if not before("5"):
        return settings.get("rope_parameters") or {}
    given: dict[str, Any] = settings.get("rope_scaling") or {}
    beside = ("rope_theta", "partial_rotary_factor")
    found = {key: settings[key] for key in beside if settings.get(key) is not None}
    return {"rope_type": given.get("type", "default")} | found | given


def before(version: str) -> bool:
    """Whether an earlier one is installed."""
    # it takes seconds to import
    import transformers
    from packaging.version import Version

    return Version(transformers.__version__) < Version(version)
