"""What the models of a study cost to serve, as modelled once and kept beside the study."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from depthbench.config import Frozen
from depthbench.cost.candidates import Candidate, Conditions, candidates_of
from depthbench.errors import DepthbenchError
from depthbench.files import write_atomic
from depthbench.study.store import Row

FILE = "serving.json"
REMEDY = "Remove it; depthbench report --serve-on writes it again"


class Served(Frozen):
    """Costs of a study's models under one set of conditions."""

    schema_version: Literal[1] = 1
    conditions: Conditions
    models: tuple[Candidate, ...]

    def of(self, row: Row) -> dict[str, float] | None:
        """Of the model of ``row``, by the names of the report's costs; None if it is not there."""
        for one in self.models:
            if one.label == row.label and one.shape == row.shape:
                return {
                    "kv": one.kv_bytes,
                    "state": one.state_bytes,
                    "memory": one.memory_bytes,
                    "ttft": one.ttft_seconds,
                    "tpot": one.tpot_seconds,
                }
        return None

    @property
    def words(self) -> str:
        """The conditions in one line."""
        asked = self.conditions
        return (
            f"{asked.device.name}, {asked.context:,} tokens of context, batch {asked.batch}, "
            f"{asked.dtype}"
        )


def serve_costs(
    folder: Path, rows: Sequence[Row], conditions: Conditions, hear: Callable[[str], None]
) -> Served:
    """Model what every shape of every design costs, and keep it in the study's folder."""
    hear(f"modelling what {len({(row.label, row.shape) for row in rows})} models cost to serve")
    models, _ = candidates_of([rows], conditions)
    found = Served(conditions=conditions, models=models)
    write_atomic(folder / FILE, found.model_dump_json(indent=1) + "\n")
    return found


def read_served(folder: Path) -> Served | None:
    """What `serve_costs` has kept; None where it has not.

    Raises `DepthbenchError` for a file that is not one of these.
    """
    path = folder / FILE
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise DepthbenchError(f"{path} cannot be read ({why}). {REMEDY}") from None
    try:
        return Served.parse(json.loads(text), str(path))
    except json.JSONDecodeError as error:
        raise DepthbenchError(f"{path} is no valid JSON ({error}). {REMEDY}") from None
