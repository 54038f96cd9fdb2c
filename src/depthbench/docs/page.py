"""``designs.md``: every registered design, from its card, its config and measurements."""

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from depthbench.check.subject import Subject, one_thread
from depthbench.cost.flops import count_flops
from depthbench.designs import REGISTRY, design_class, parse_design
from depthbench.docs.drawing import signal_figure, wiring_figure
from depthbench.docs.rows import STATED, options_of, row_of, shown, words_of
from depthbench.docs.start import InitCard, init_cards
from depthbench.docs.wiring import Wiring, drawn_config, wiring
from depthbench.files import write_atomic
from depthbench.machine import end_with_parent, prepare_process
from depthbench.nn.model import ModelConfig

LENGTH = 2048
"""Of the sequence that operations are counted for."""
TINY = 1e-12
"""Distances below are rounding, which differs between processors."""
COMMAND = "depthbench designs --docs docs"
HEAD = f"""<!-- Written by `{COMMAND}`; do not edit. -->

# Designs

Every residual design of depthbench. Cards, options and figures come from the code itself:
`{COMMAND}` writes this page.

`h` is the state of a one-stream design, `x` a branch's input, `y` its output, `N` an RMSNorm with
a gain, `b` the block from 0, `L` the number of blocks, `d` the width, `m` the number of streams.
A block has two sites: attention and feed-forward.

**Own parameters** are what the design adds to `prenorm`. They and the operations are counted at
24 blocks of width 1024 with 16 heads; operations are those of one token's forward in a sequence
of {LENGTH}, a multiplication and an addition counted as two, without norms and activations.

**Wiring** is measured. Every branch is cut off and a random tensor of size 1 stands for its
output; the embedding has size 1 too. An arc says that a small change of the tensor on its left
changes what the site on its right reads, through the design alone. The stronger, the wider and
darker, relative to the strongest arc into the same site. Grey: the embedding. Blue: attention
outputs (`A0` is that of block 0). Orange: feed-forward outputs. `out` is the readout. Dashed: the
change arrives, but no gradient returns. Dotted: below 1 % of the strongest. Green, below the
line: through keys and values that an earlier site stored for attention. A second panel shows the
same with random numbers added to the design's parameters, where it has coefficients to learn.

**Init card.** One fresh float64 model of width 32 for each number of blocks. *State*: variance of
the state, top over bottom. *Gradient by outputs*: mean square of the loss's gradient by branch
outputs, bottom block over top. *Gradient by parameters*: its norm in a block, bottom over top.
*To prenorm*: largest difference of the logits to those of `prenorm` at the same backbone weights,
over the largest logit. `—`: not defined, because the divisor is 0 or not finite.
"""


class Measured(NamedTuple):
    """What is measured of one design."""

    start: Wiring
    learned: Wiring | None
    """With random parameters; None where no coefficient is learned."""
    cards: list[InitCard]


class Section(NamedTuple):
    """One design's part of the page, and its figures."""

    name: str
    text: str
    wiring: bytes
    init: bytes


def write_docs(
    folder: Path, workers: int = 1, done: Callable[[str], object] = lambda _: None
) -> Path:
    """Write ``designs.md`` and the figures it shows to ``folder``; the page's path.

    ``done`` is called with each design's name as it is measured.
    """
    sections = []
    for section in _sections(list(REGISTRY), workers):
        write_atomic(folder / "wiring" / f"{section.name}.svg", section.wiring)
        write_atomic(folder / "init" / f"{section.name}.svg", section.init)
        sections.append(section.text)
        done(section.name)
    page = folder / "designs.md"
    write_atomic(page, "\n".join([HEAD, overview(list(REGISTRY)), *sections]))
    return page


def _sections(names: Sequence[str], workers: int):
    """In order; several at once in processes of their own."""
    if workers == 1:
        yield from map(section_of, names)
        return
    with ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=_prepare
    ) as pool:
        yield from pool.map(section_of, names)


def _prepare() -> None:
    end_with_parent()
    prepare_process(threads=1)


def section_of(name: str) -> Section:
    """Measure, draw and describe one design."""
    with one_thread():
        found = measured(name)
    panels = {"at the start": found.start}
    if found.learned is not None:
        panels["random parameters"] = found.learned
    init = signal_figure([card.signal for card in found.cards])
    text = "\n".join([*described(name), *_measured_lines(name, found)])
    return Section(name, text, wiring_figure(panels), init)


def measured(name: str) -> Measured:
    """Wiring and init card."""
    drawn = drawn_config(name)
    fixed = design_class(name).card.weights == "fixed"
    return Measured(
        start=wiring(drawn, learned=False),
        learned=None if fixed else wiring(drawn, learned=True),
        cards=init_cards(Subject(parse_design(name))),
    )


def overview(names: Sequence[str]) -> str:
    """One line for each design."""
    lines = [
        "| design | family | a site reads | weights | own parameters | operations a token |",
        "|---|---|---|---|---|---|",
    ]
    for name in names:
        row, (own, whole) = row_of(name), flops_of(name)
        cells = (
            f"[`{name}`](#{name})",
            row["family"],
            row["sources"],
            row["weights"],
            _signed(row["own_at_24_layers_width_1024"]),
            f"{_signed(own)} ({own / whole:+.2%})" if own else "0",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def flops_of(name: str) -> tuple[int, int]:
    """Operations a token at `STATED`: the design's own, and the whole forward's."""
    flops = count_flops(ModelConfig(shape=STATED, design=parse_design(name)), LENGTH)
    return flops.own // LENGTH, flops.forward // LENGTH


def described(name: str) -> list[str]:
    """What the code says of a design: no measurement."""
    kind, row, (own, whole) = design_class(name), row_of(name), flops_of(name)
    parameters = _signed(row["own_at_24_layers_width_1024"])
    return [
        f"## {name}",
        "",
        _markdown(words_of(kind)),
        "",
        "| | |",
        "|---|---|",
        f"| equation | {_code(row['equation'])} |",
        f"| family | {row['family']} |",
        f"| a site reads | {row['sources']} |",
        f"| weights | {row['weights']} |",
        f"| own parameters | `{row['own']}` = {parameters} |",
        f"| operations a token | {_signed(own)} own of {whole:,} |",
        f"| peak learning rate at 400 M | {row['peak_lr']:g} |",
        f"| paper | {_linked(row['paper'])} |",
        "",
        *_options(name),
    ]


def _options(name: str) -> list[str]:
    options = options_of(name)
    if not options:
        return ["No options.", ""]
    lines = ["| option | default | allowed | meaning |", "|---|---|---|---|"]
    for option in options:
        allowed = option["allowed"].replace("|", "\\|")
        meaning = _cell(option["meaning"])
        lines.append(f"| `{option['name']}` | {shown(option['default'])} | {allowed} | {meaning} |")
    return ["Options.", "", _markdown(words_of(design_class(name).Config)), "", *lines, ""]


def _measured_lines(name: str, found: Measured) -> list[str]:
    drawn = drawn_config(name).all_fields()
    default = parse_design(name).all_fields()
    changed = [f"{key} = {shown(v)}" for key, v in drawn.items() if v != default[key]]
    at = f", drawn with `{', '.join(changed)}`" if changed else ""
    strengths = ", ".join(
        f"`{source}` {strength:.2f}"
        for source, strength in zip(found.start.sources, found.start.forward[-1], strict=True)
    )
    return [
        f"Wiring of four blocks{at}:",
        "",
        f"![Wiring of {name}](wiring/{name}.svg)",
        "",
        f"Into the readout's norm at the start: {strengths}.",
        "",
        _sums(found.learned or found.start),
        *_stored(found.start),
        "",
        *_card_lines(found.cards),
        "",
        f"![Signal and gradient of {name} by depth at the start](init/{name}.svg)",
        "",
    ]


def _sums(found: Wiring) -> str:
    """Which sources cannot be told apart at the top, as measured."""
    joined = [" + ".join(f"`{name}`" for name in one) for one in found.sums if len(one) > 1]
    if not joined:
        return "The readout sees no outputs as a plain sum."
    return f"The readout sees only as sums: {'; '.join(joined)}."


def _stored(found: Wiring) -> list[str]:
    """Which sites are seen through stored entries, as measured."""
    seen = [
        f"`{found.targets[target]}` of "
        + ", ".join(f"`{found.targets[site]}`" for site, strength in enumerate(row) if strength)
        for target, row in enumerate(found.stored)
        if any(row)
    ]
    return ["", f"Attention sees stored entries: {'; '.join(seen)}."] if seen else []


def _card_lines(cards: Sequence[InitCard]) -> list[str]:
    lines = [
        "| blocks | state | gradient by outputs | gradient by parameters | to prenorm |",
        "|---|---|---|---|---|",
    ]
    for card in cards:
        signal = card.signal
        numbers = (signal.forward_growth, signal.backward_ratio, signal.gradient_ratio)
        cells = [*map(_number, numbers), _distance(card.distance)]
        lines.append(f"| {signal.layers} | " + " | ".join(cells) + " |")
    return lines


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:.3g}"


def _distance(value: float | None) -> str:
    if value is None:
        return "—"
    return "0" if value == 0 else "< 1e-12" if value < TINY else f"{value:.2g}"


def _signed(count: int) -> str:
    return f"{count:,}".replace("-", "−")


def _markdown(docstring: str) -> str:
    """Code spans as Markdown writes them."""
    return docstring.replace("``", "`")


def _cell(text: str) -> str:
    return _markdown(text).replace("|", "\\|")


def _code(text: str) -> str:
    """A code span that may hold the bars of a norm inside a table."""
    return "`" + text.replace("|", "\\|") + "`"


def _linked(paper: str) -> str:
    return re.sub(r"arXiv (\d{4}\.\d{4,5})", r"[arXiv \1](https://arxiv.org/abs/\1)", paper)
