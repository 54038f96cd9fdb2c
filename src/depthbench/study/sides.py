"""The two sides of a comparison, from what was typed."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from depthbench.config import override, read_toml
from depthbench.designs import REGISTRY, design_class, label_of
from depthbench.errors import DepthbenchError, unknown
from depthbench.study.single import RunConfig

BASELINE = {"name": RunConfig().design.name}
EVERY_STEP = "train.log_every=1"
"""What a comparison trains with unless told otherwise: its differences are per step."""


def parse_sides(
    a: str, b: str, shared: Sequence[str]
) -> tuple[tuple[RunConfig, RunConfig], tuple[str, str]]:
    """Config and label of both sides; labels differ where configs do.

    A side is a design or a run's file, and may go on with settings of its own: ``hc``,
    ``mine.toml``, ``hc mix=false learning_rate=1e-3``. A key without a dot that is an
    option of the side's design is the design's. ``shared`` settings hold for both; a side's own
    win. Raises `DepthbenchError` for what is none of these, and for two equal sides.
    """
    (one, name), (other, second) = _side(a, shared), _side(b, shared)
    if one.model_copy(update={"name": other.name}) == other:
        raise DepthbenchError(
            f"A ({a}) and B ({b}) are the same run: nothing can differ. "
            'Give one of them a setting of its own: "hc learning_rate=1e-3"'
        )
    if name == second:
        name, second = f"{name} (A)", f"{second} (B)"
    return (one, other), (name, second)


def folder_name(labels: tuple[str, str]) -> str:
    """``prenorm-vs-hc``: what a comparison's folder is called."""
    words = [re.sub(r"[^A-Za-z0-9._]+", "-", label).strip("-.") or "side" for label in labels]
    return "-vs-".join(word[:36] for word in words)


def _side(text: str, shared: Sequence[str]) -> tuple[RunConfig, str]:
    first, own = _words(text)
    tables, name = _base(first)
    if "log_every" not in tables.get("train", {}):
        tables = override(tables, [EVERY_STEP])
    tables = override(tables, [*shared])
    options = _options(tables)
    settings = [_qualified(setting, options) for setting in own]
    config = RunConfig.parse(override(tables, settings), text)
    if name is not None:
        return config, " ".join([name, *own])
    others = [setting for setting in own if _key(setting) not in options]
    return config, " ".join([label_of(config.design), *others])


def _words(text: str) -> tuple[str, list[str]]:
    """Design or file, and the side's own settings."""
    if Path(text).is_file():
        return text, []
    # quotes stay: values are TOML
    words = re.findall(r"""(?:"[^"]*"|'[^']*'|\S)+""", text)
    if not words or "=" in words[0]:
        raise DepthbenchError(
            f"side '{text}' of the comparison begins with no design and no file. Write it like hc, "
            'mine.toml or "hc mix=false"'
        )
    return words[0], words[1:]


def _base(first: str) -> tuple[dict[str, Any], str | None]:
    """Tables to start from, and a file's name for the label."""
    if first.endswith(".toml") or Path(first).exists():
        tables = read_toml(Path(first))
        design = tables.get("design", BASELINE)
        tables["design"] = {"name": design} if isinstance(design, str) else design
        return tables, str(tables.get("name", Path(first).stem))
    if first not in REGISTRY:
        error = unknown("design", first, REGISTRY)
        raise DepthbenchError(f"'{first}' is neither a run's .toml file nor a design: {error}")
    return {"design": {"name": first}}, None


def _options(tables: dict[str, Any]) -> frozenset[str]:
    """Names of the options of the side's design."""
    design = tables.get("design", {})
    name = design.get("name") if isinstance(design, dict) else design
    if not isinstance(name, str):
        return frozenset()
    return frozenset(design_class(name).Config.model_fields) - {"name"}


def _qualified(setting: str, options: frozenset[str]) -> str:
    key = _key(setting)
    if key in options:
        return f"design.{setting}"
    if "." not in key and key not in RunConfig.model_fields:
        raise unknown("setting", key, options | RunConfig.model_fields.keys())
    return setting


def _key(setting: str) -> str:
    return setting.partition("=")[0].strip()
