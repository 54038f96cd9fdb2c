"""``config.md``: every field of every config, from the models themselves."""

from collections.abc import Iterator, Mapping

from depthbench.config import Frozen
from depthbench.cost.candidates import Conditions
from depthbench.cost.choose import ChooseConfig, Limits
from depthbench.cost.devices import DeviceSpec
from depthbench.cost.measure import BenchConfig
from depthbench.cost.predict import Split
from depthbench.cost.scaling import ScalingConfig
from depthbench.data.config import PrepareConfig
from depthbench.docs.fields import fields_of, inner_models
from depthbench.docs.markdown import COMMAND, cell, paragraph, table
from depthbench.docs.rows import words_of
from depthbench.evals.domains import DomainConfig
from depthbench.evals.harness import HarnessConfig
from depthbench.evals.pairs import PairsConfig
from depthbench.evals.task_study import TaskStudyConfig
from depthbench.nn.backbones import BACKBONES
from depthbench.nn.branch import Backbone
from depthbench.nn.generate import Sampling
from depthbench.nn.rope_scaling import KINDS as ROPE_SCALINGS
from depthbench.probes.heal import HealConfig
from depthbench.probes.load import Parts
from depthbench.probes.text import TextConfig
from depthbench.streams.sample import SampleConfig
from depthbench.streams.tune import TuneConfig
from depthbench.study.compare import CompareConfig
from depthbench.study.config import StudyConfig
from depthbench.study.single import RunConfig
from depthbench.train.config import TrialConfig
from depthbench.train.coordinates import Grid

OTHER_BACKBONES = tuple(kind.Config for kind in BACKBONES.values() if kind.Config is not Backbone)
GROUPS: Mapping[str, tuple[str, tuple[type[Frozen], ...]]] = {
    "A study file": (
        "What `depthbench run STUDY` reads. Tables stand under the name of their field: "
        "`[shapes]`, `[search]`, `[train]`, `[train.health]`, `[data]`. Only `name`, `designs`, "
        "`shapes` and `search` are needed.",
        (StudyConfig, *OTHER_BACKBONES, *ROPE_SCALINGS.values()),
    ),
    "One run": (
        "What `depthbench train [FILE] KEY=VALUE...` reads.",
        (RunConfig,),
    ),
    "A comparison": (
        "What `depthbench compare` writes to `compare.toml`; each side is a run.",
        (CompareConfig,),
    ),
    "A trial": (
        "`config.json` in a trial's folder: everything that fixes its result. Its digest is the "
        "trial's id.",
        (TrialConfig,),
    ),
    "Text": (
        "Options of `depthbench data prepare`, and the text that probes read.",
        (PrepareConfig, TextConfig),
    ),
    "Evaluation": (
        "Options of `depthbench eval` and `depthbench eval tasks`.",
        (DomainConfig, PairsConfig, HarnessConfig, TaskStudyConfig),
    ),
    "Models": (
        "Where a model from elsewhere keeps its parts, how text is drawn, how a pruned model is "
        "trained on. Options of each probe stand with it: [every probe](every-probe.md).",
        (Parts, Sampling, HealConfig),
    ),
    "Streams": (
        "What `depthbench streams` looks at, and how it trains on.",
        (SampleConfig, TuneConfig),
    ),
    "Cost": (
        "A device's file (`--device FILE`), and options of `cost`, `bench` and `choose`.",
        (DeviceSpec, Split, BenchConfig, Conditions, Limits, ChooseConfig, ScalingConfig),
    ),
    "Coordinate check": (
        "Sizes of `depthbench coordcheck`.",
        (Grid,),
    ),
}
HEAD = f"""<!-- Written by `{COMMAND}`; do not edit. -->

# Configuration

Every field of every config, from the code itself: `{COMMAND}` writes this page. Unknown keys are
errors that name the nearest one. On the command line a field is its dotted name:
`depthbench run study.toml train.tokens=2e6 data.tokenizer=bpe`. *needed*: there is no default. An
empty default is "not given"; what that means stands beside it. A whole number may be written as
`2e5`.
"""


def config_page() -> str:
    """The page."""
    seen: set[type[Frozen]] = set()
    lines = [HEAD]
    for title, (words, roots) in GROUPS.items():
        lines += [f"## {title}", "", words, ""]
        for config in roots:
            for one in _with_inner(config):
                if one not in seen:
                    seen.add(one)
                    lines += _section(one)
    return "\n".join(lines)


def every_config() -> list[type[Frozen]]:
    """All configs of the page."""
    roots = [config for _, several in GROUPS.values() for config in several]
    return list(dict.fromkeys(one for config in roots for one in _with_inner(config)))


def _with_inner(config: type[Frozen]) -> Iterator[type[Frozen]]:
    """It, and what its fields hold, in the order of the fields."""
    yield config
    for inner in inner_models(config):
        # a design has a page of its own
        if issubclass(inner, Frozen) and not inner.__module__.startswith("depthbench.designs"):
            yield from _with_inner(inner)


def _section(config: type[Frozen]) -> list[str]:
    rows = [
        (f"`{field.name}`", _linked(field.kind), field.default, cell(paragraph(field.meaning)))
        for field in fields_of(config)
    ]
    lines = [f"### {config.__name__}", "", paragraph(words_of(config)), ""]
    return [*lines, *table(("field", "kind", "default", "meaning"), rows), ""]


def _linked(kind: str) -> str:
    """A design's kind points to the page of designs."""
    return kind.replace("#designconfig", "designs.md")
