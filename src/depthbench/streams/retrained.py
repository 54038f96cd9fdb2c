"""Hard and re-trained ablation side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from depthbench.errors import DepthbenchError
from depthbench.probes.lab import Lab
from depthbench.probes.probe import Found, StreamsProbe
from depthbench.probes.result import Curve, Finding, Matrix, Number, row, table, value
from depthbench.streams.ablation import PERCENT, RowLosses, row_losses
from depthbench.streams.retrain import Row
from depthbench.streams.sites import Removal, span_words
from depthbench.streams.tune import TuneConfig
from depthbench.study.words import counted, listed

SEEDS = 3
"""Of re-training, from which on a stream is called replaceable."""
AGAIN = 0.5
"""Share of the hard change under which training has brought most of it back."""


@dataclass(frozen=True)
class Sides:
    """Changes of the loss without streams, in % of the loss: at once, and after training on."""

    removals: tuple[Removal, ...]
    seeds: int
    hard: NDArray[np.float64]
    """``(removals,)``."""
    trained: NDArray[np.float64]
    """``(removals, seeds)``: against the model that kept all streams and trained on as long."""
    hard_by_domain: NDArray[np.float64]
    """``(domains, removals)``."""
    trained_by_domain: NDArray[np.float64]
    """``(domains, removals)``, mean over seeds."""
    domains: tuple[str, ...]


class Retrained(StreamsProbe):
    """What was trained, by `depthbench.streams.retrain.retrain`, is given as ``rows``."""

    name: ClassVar[str] = "retrained"
    title: ClassVar[str] = "Loss without a stream, at once and after training on"
    definition: ClassVar[str] = (
        "hard: a stream set to zero in front of every site of a range of blocks, loss / loss of "
        "the whole model - 1; re-trained: the model trained on so, loss / loss of the whole model "
        "trained on for as many steps on the same batches - 1; mean and ends over seeds of the "
        "batches"
    )
    blind: ClassVar[str] = (
        "A few hundred steps may bring back less than many would. What the others take over, they "
        "may lack elsewhere: compare the domains."
    )
    reading: ClassVar[str] = (
        "The gap between hard and re-trained is what the others can take over. Only the re- "
        "trained figure is evidence for a merge."
    )
    rows: tuple[Row, ...] = Field(min_length=1)
    """Which streams are taken away, and where."""
    tune: TuneConfig = TuneConfig()
    """How the model is trained on."""
    batches: int = Field(ge=1)
    """Batches of text that losses are of."""

    def look(self, lab: Lab) -> Found:
        sides = self.sides(lab)
        names = lab.subject.stream_names
        findings: list[Finding] = []
        for streams in dict.fromkeys(one.streams for one in sides.removals):
            places = [n for n, one in enumerate(sides.removals) if one.streams == streams]
            findings += self._of(sides, streams, places, lab.layers, names)
        for number, name in enumerate(sides.domains):
            findings += self._maps(sides, number, name, lab.layers)
        return Found(findings, self._words(sides, lab.layers, names))

    def sides(self, lab: Lab) -> Sides:
        """Raises `DepthbenchError` where a removal was not trained with each seed."""
        removals = tuple(dict.fromkeys(one.removal for one in self.rows if one.removal is not None))
        seeds = sorted({one.seed for one in self.rows})
        hard = row_losses(lab, removals, range(self.batches))
        trained = np.empty((len(removals), len(seeds)))
        by_domain = np.zeros((len(hard.names), len(removals)))
        of = {(one.removal, one.seed): one for one in self.rows}
        for column, seed in enumerate(seeds):
            rows = [of.get((one, seed)) for one in (None, *removals)]
            if any(one is None for one in rows):
                raise DepthbenchError(
                    f"seed {seed}: not every removal was trained, nor the control. Run "
                    "depthbench streams ablate --retrain again"
                )
            nats = np.array([one.nats for one in rows if one is not None])
            each = RowLosses(nats, hard.tokens, lab.text.domains_of(range(self.batches)))
            trained[:, column] = each.changes()
            by_domain += each.by_domain() / len(seeds)
        return Sides(
            removals=removals,
            seeds=len(seeds),
            hard=100 * hard.changes(),
            trained=100 * trained,
            hard_by_domain=100 * hard.by_domain(),
            trained_by_domain=100 * by_domain,
            domains=hard.names,
        )

    def _of(
        self,
        sides: Sides,
        streams: tuple[int, ...],
        places: Sequence[int],
        layers: int,
        names: Sequence[str],
    ) -> list[Finding]:
        """Curves over ranges, and numbers of all blocks."""
        key = "_".join(map(str, streams))
        which = _spoken(streams, names)
        parts = [n for n in places if not _whole(sides.removals[n], layers)]
        parts = parts or (places if len(streams) == 1 else [])
        findings: list[Finding] = []
        if parts:
            starts = tuple(float(sides.removals[n].start) for n in parts)
            words = f"{which} taken away from block {{}} on"
            told = {"unit": PERCENT, "axis": "first block of the range", "places": starts}
            told["group"] = f"Loss without {which}, by range of blocks"
            spread = sides.trained[parts]
            findings += [
                Curve(
                    name=f"hard_{key}",
                    title="at once",
                    values=row(sides.hard[parts]),
                    words=f"{words}: change of the loss",
                    **told,
                ),
                Curve(
                    name=f"retrained_{key}",
                    title=f"trained on, mean and ends over {counted(sides.seeds, 'seed')}",
                    values=row(spread.mean(1)),
                    low=row(spread.min(1)),
                    high=row(spread.max(1)),
                    words=f"{words}, trained on: change of the loss",
                    **told,
                ),
            ]
        told = _told(sides, layers)
        return [
            *findings,
            *(one for n in places if n in told for one in _numbers(sides, n, key, which, layers)),
        ]

    def _maps(self, sides: Sides, number: int, name: str, layers: int) -> list[Finding]:
        """Single streams × ranges in one domain, hard and re-trained."""
        single = [
            n
            for n, one in enumerate(sides.removals)
            if len(one.streams) == 1 and not _whole(one, layers)
        ]
        if not single:
            return []
        streams = sorted({sides.removals[n].streams[0] for n in single})
        starts = sorted({sides.removals[n].start for n in single})
        found: list[Finding] = []
        for kind, changes in (
            ("hard", sides.hard_by_domain[number]),
            ("retrained", sides.trained_by_domain[number]),
        ):
            cells = np.full((len(streams), len(starts)), np.nan)
            for n in single:
                one = sides.removals[n]
                cells[streams.index(one.streams[0]), starts.index(one.start)] = changes[n]
            found.append(
                Matrix(
                    name=f"{kind}_domain_{number}",
                    title=f"{'Hard' if kind == 'hard' else 'Re-trained'}, domain {name}",
                    unit=PERCENT,
                    row_axis="stream",
                    column_axis="first block of the range",
                    rows=tuple(map(float, streams)),
                    columns=tuple(map(float, starts)),
                    values=table(cells),
                    centre=0.0,
                    words=f"stream {{row}} taken away from block {{column}} on, {name}: change",
                )
            )
        return found

    def _words(self, sides: Sides, layers: int, names: Sequence[str]) -> list[str]:
        said = [
            f"Trained on {self.tune.steps} steps at {self.tune.rate:.0%} of the peak rate, "
            f"{sides.seeds} {'seed' if sides.seeds == 1 else 'seeds'}."
        ]
        for n in _told(sides, layers):
            hard, trained = sides.hard[n], sides.trained[n].mean()
            which = _spoken(sides.removals[n].streams, names)
            back = ""
            if sides.seeds >= SEEDS and hard > 0 and trained < AGAIN * hard:
                back = " Training brings most of it back: present, but replaceable."
            said.append(
                f"Without {which}{_where(sides.removals[n], layers)}: {hard:+.3g} % at "
                f"once, {trained:+.3g} % after training on ({sides.trained[n].min():+.3g} to "
                f"{sides.trained[n].max():+.3g}).{back}"
            )
        return said + [f"{note}." for one in self.rows for note in one.notes]


@final
class RetrainedPart(Retrained):
    """Of some streams or some blocks: no evidence for a verdict."""

    name: ClassVar[str] = "retrained_part"
    title: ClassVar[str] = "Loss without some streams, at once and after training on"


def _whole(removal: Removal, layers: int) -> bool:
    return (removal.start, removal.stop) == (0, layers)


def _told(sides: Sides, layers: int) -> list[int]:
    """Removals that are told of one by one: those over all blocks, or all where none is."""
    every = range(len(sides.removals))
    return [n for n in every if _whole(sides.removals[n], layers)] or list(every)


def _spoken(streams: Sequence[int], names: Sequence[str]) -> str:
    return f"stream{'s' * (len(streams) > 1)} {listed(names[one] for one in streams)}"


def _where(removal: Removal, layers: int) -> str:
    return "" if _whole(removal, layers) else f" in {span_words((removal.start, removal.stop))}"


def _numbers(sides: Sides, n: int, key: str, which: str, layers: int) -> list[Number]:
    """One removal, hard and re-trained."""
    removal, each = sides.removals[n], sides.trained[n]
    whole = _whole(removal, layers)
    own = f"whole_{key}" if whole else f"{removal.start}_{removal.stop}_of_{key}"
    title = f"Without {which}{_where(removal, layers)}"
    return [
        Number(
            name=f"hard_{own}", title=f"{title}, hard", unit=PERCENT, value=value(sides.hard[n])
        ),
        Number(
            name=f"retrained_{own}",
            title=f"{title}, re-trained",
            unit=PERCENT,
            value=value(each.mean()),
            low=value(each.min()),
            high=value(each.max()),
            span=f"ends over {counted(sides.seeds, 'seed')}",
        ),
    ]
