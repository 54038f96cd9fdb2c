"""``every-probe.md``: every probe with its definition, how to read it, and what it cannot see."""

import re
from collections.abc import Sequence

from depthbench.docs.fields import fields_of
from depthbench.docs.markdown import COMMAND, cell, paragraph, table
from depthbench.probes import PROBES
from depthbench.probes.probe import Probe
from depthbench.redundancy import PROBES as REDUNDANCY
from depthbench.streams import PROBES as STREAMS
from depthbench.streams.ablation import AblationPart
from depthbench.streams.retrained import Retrained, RetrainedPart
from depthbench.streams.verdict import Verdict

GROUPS: tuple[tuple[str, str, tuple[type[Probe], ...]], ...] = (
    ("depth", "`depthbench probe`: see [probes](probes.md).", PROBES),
    ("redundancy", "See [redundancy](redundancy.md).", REDUNDANCY),
    (
        "streams",
        "`depthbench streams`: see [streams](streams.md).",
        (*STREAMS, AblationPart, Retrained, RetrainedPart, Verdict),
    ),
)
HEAD = f"""<!-- Written by `{COMMAND}`; do not edit. -->

# Every probe

Every probe: its definition, how to read it, what it cannot see, its options. All of it stands in
each result too. `{COMMAND}` writes this page from the code.

Depth states `z_0 … z_L`: `z_0` is what the first block reads, `z_{{l+1}}` what stands behind block
`l`. A number on its own says little: compare a model with another one on the same text, or with
itself earlier in training. Options are those of the Python classes; results name the values that
were used.
"""


def probes_page() -> str:
    """The page."""
    lines = [HEAD]
    for title, words, probes in GROUPS:
        rows = [(f"[`{one.name}`](#{one.name})", cell(one.title)) for one in probes]
        lines += [f"## Probes of {title}", "", words, "", *table(("probe", "what"), rows), ""]
        for one in probes:
            lines += _section(one)
    return "\n".join(lines)


def every_probe() -> list[type[Probe]]:
    """All probes of the page."""
    return [one for _, _, probes in GROUPS for one in probes]


def _section(probe: type[Probe]) -> list[str]:
    parts = [
        ("Definition", probe.definition),
        ("How to read it", probe.reading),
        ("What it cannot see", probe.blind),
        ("Source", _linked(probe.source)),
    ]
    lines = [f"### {probe.name}", "", f"*{cell(probe.title)}.*", ""]
    for heading, text in parts:
        if text:
            shown = text if heading == "Source" else cell(_sentence(text))
            lines += [f"**{heading}.** {shown}", ""]
    return [*lines, *_options(probe)]


def _options(probe: type[Probe]) -> Sequence[str]:
    own = [one for one in fields_of(probe) if one.name != "seed"]
    if not own:
        return ()
    rows = [
        (
            f"`{one.name}`",
            re.sub(r"\[(\w+)\]\([^)]*\)", r"`\1`", one.kind),
            one.default,
            cell(paragraph(one.meaning)),
        )
        for one in own
    ]
    return [*table(("option", "kind", "default", "meaning"), rows), ""]


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _linked(source: str) -> str:
    """arXiv numbers as links."""
    return re.sub(r"arXiv (\d{4}\.\d{4,5})", r"[arXiv \1](https://arxiv.org/abs/\1)", source)
