"""JSON Schemas of everything that depthbench writes or prints as data."""

from importlib import import_module
from typing import Any, NamedTuple

from depthbench.config import Frozen
from depthbench.errors import unknown


class Document(NamedTuple):
    """One kind of data."""

    place: str
    """Module and class that it is made from."""
    version: int
    """A field that goes, or changes its meaning, makes it one more; a new field does not."""
    found: str
    """Files and commands that give it."""


DOCUMENTS = {
    "row": Document(
        "depthbench.study.store:Row",
        1,
        "each line of results.jsonl; train --json; each of eval tasks --json",
    ),
    "stopped": Document(
        "depthbench.train.outcome:Stopped", 1, "train --json of a run that was stopped"
    ),
    "verdict": Document("depthbench.study.findings:Verdict", 1, "verdict.json; report --json"),
    "concluded": Document("depthbench.study.findings:Concluded", 1, "run and demo --json"),
    "drafted": Document("depthbench.study.draft:Drafted", 1, "init --json"),
    "study": Document("depthbench.study.plan:ResolvedStudy", 1, "study.toml of a study's folder"),
    "trial": Document("depthbench.train.config:TrialConfig", 1, "config.json of a trial"),
    "study-cost": Document("depthbench.cost.study_cost:StudyForecast", 1, "run --dry-run --json"),
    "contrast": Document("depthbench.study.contrast:Contrast", 1, "comparison.json"),
    "compared": Document("depthbench.study.contrast:Compared", 1, "compare --json"),
    "coordinates": Document("depthbench.train.coordinates:CoordinateCheck", 1, "coordcheck --json"),
    "probe": Document(
        "depthbench.probes.result:ProbeResult",
        1,
        "files in probes/ and streams/; probe, streams diagnose, ablate and report --json",
    ),
    "evaluation": Document("depthbench.evals.result:Evaluation", 1, "eval.json; eval MODEL --json"),
    "health": Document("depthbench.train.health.findings:HealthReport", 1, "health.json"),
    "status": Document("depthbench.train.status:Status", 1, "status.json"),
    "view": Document("depthbench.watch.place:View", 1, "watch --json"),
    "manifest": Document("depthbench.data.manifest:Manifest", 3, "manifest.json of prepared data"),
    "prepared": Document("depthbench.data.manifest:Prepared", 1, "data prepare --json"),
    "inspected": Document("depthbench.data.inspect:Inspected", 1, "data inspect --json"),
    "converted": Document("depthbench.hub.convert:Converted", 1, "convert --json"),
    "pruned": Document("depthbench.probes.prune:Pruned", 1, "prune.json"),
    "pruned-into": Document("depthbench.probes.prune:PrunedInto", 1, "prune --json"),
    "merged": Document("depthbench.streams.merge.merged:Merged", 2, "merge.json"),
    "merged-into": Document(
        "depthbench.streams.merge.merged:MergedInto", 2, "streams merge --json"
    ),
    "costs": Document("depthbench.cost.grid:Costs", 1, "cost.json; cost --json"),
    "benched": Document("depthbench.cli.bench:Benched", 1, "bench --json"),
    "chosen": Document("depthbench.cli.choose:Chosen", 1, "choose.json; choose --json"),
    "checked": Document("depthbench.cli.check:CheckedTold", 1, "each of check --json"),
    "generated": Document("depthbench.cli.generate:Generated", 1, "generate --json"),
    "device": Document("depthbench.cost.devices:DeviceSpec", 1, "bench device --json"),
    "serving": Document(
        "depthbench.report.serving:Served", 1, "serving.json, of report --serve-on"
    ),
    "doctor": Document("depthbench.doctor:Health", 1, "doctor --json"),
}


def model_of(name: str) -> type[Frozen]:
    """The class that makes it. Raises `DepthbenchError` for an unknown name."""
    if name not in DOCUMENTS:
        raise unknown("schema", name, DOCUMENTS)
    module, _, kind = DOCUMENTS[name].place.partition(":")
    found: type[Frozen] = vars(import_module(module))[kind]
    return found


def schema_of(name: str) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of the data ``name``."""
    schema = model_of(name).model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:depthbench:{name}:{DOCUMENTS[name].version}",
        **schema,
    }
