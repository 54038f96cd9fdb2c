"""Routers that leave experts out, or send most tokens to a few of them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from depthbench.probes.bootstrap import interval
from depthbench.probes.lab import Lab, Part, Task
from depthbench.probes.probe import Found, Probe
from depthbench.probes.result import Curve, Finding, Matrix, Number, counted_from, row, table, value
from depthbench.probes.subject import Subject
from depthbench.probes.walk import Walker
from depthbench.redundancy.experts_history import over_training
from depthbench.study.words import counted, listed
from depthbench.train.health.depth_rules import effective, spoken

Array = NDArray[np.float64]


class Loads(Task):
    """By block with a router: share of each row's choices by expert; and the rows' tokens."""

    name: ClassVar[str] = "loads"

    @torch.no_grad()
    def measure(self, walker: Walker, subject: Subject) -> Part:
        session = walker.session
        shares = {
            str(block): one.double().cpu().T.numpy() for block, one in session.loads().items()
        }
        return shares | {"tokens": session.batch.valid.sum(1).double().cpu().numpy()}


@dataclass(frozen=True)
class Routed:
    """Choices of one router by document."""

    block: int
    shares: Array
    """``(experts, rows)``."""
    tokens: Array

    @property
    def experts(self) -> int:
        """How many there are."""
        return len(self.shares)

    def load(self, weights: Array | None = None) -> Array:
        """Share of the choices by expert; rows count as often as ``weights`` say."""
        counts = self.tokens if weights is None else self.tokens * weights
        return self.shares @ counts / counts.sum()

    def information(self, domains: NDArray[np.int64]) -> float:
        """Mutual information of a token's domain and the expert of a choice, in nats."""
        known = [self.load((domains == one).astype(float)) for one in np.unique(domains)]
        weights = [self.tokens[domains == one].sum() for one in np.unique(domains)]
        within = np.average([_entropy(one) for one in known], weights=weights)
        return float(max(0.0, _entropy(self.load()) - within))


def _entropy(shares: Array) -> float:
    return math.log(effective(shares.tolist()))


@final
class Experts(Probe):
    """From where on an expert is dead, and a router has collapsed."""

    name: ClassVar[str] = "experts"
    title: ClassVar[str] = "How routers use their experts"
    definition: ClassVar[str] = (
        "with p_e the share of a router's choices that go to expert e of E, each of a token's "
        "top-k counting 1/k: H = -Σ p_e ln p_e, effective number exp(H), H / ln E, share of the "
        "busiest; an expert is dead under a share of 1/E; mutual information of domain and expert "
        "Σ p(g,e) ln (p(g,e) / p(g) p(e)); 95 % bootstrap intervals over documents"
    )
    blind: ClassVar[str] = (
        "A choice counts the same whatever weight it has, and experts that are used evenly may "
        "still compute the same. An expert that is dead here may serve text that is not in the "
        "sample. Entropy of few tokens is too low, information too high: hold it against the "
        "shuffled one."
    )
    reading: ClassVar[str] = (
        "Effective number near the number of experts: even use. Dead experts in late blocks: "
        "capacity that is paid for and not used. Information well above the shuffled one: experts "
        "follow domains."
    )
    source: ClassVar[str] = "arXiv 2101.03961"
    dead: float = Field(default=0.1, gt=0, lt=1)
    """Share over the even share under which an expert is dead."""
    collapsed: float = Field(default=0.5, gt=0, lt=1)
    """Effective number of experts over their number under which a router has collapsed."""
    busiest: float = Field(default=0.25, gt=0, lt=1)
    """Of the experts, rounded up: those whose share together is told."""
    informed: float = Field(default=0.05, gt=0, lt=1)
    """Information over the entropy of the domains from which on experts follow the domain."""
    shuffles: int = Field(default=20, ge=1)
    """Times that documents change domains to see what chance gives."""

    def refusal(self, subject: Subject) -> str | None:
        return subject.no_routers()

    def look(self, lab: Lab) -> Found:
        part = lab.joined(Loads())
        blocks = sorted(int(name) for name in part if name != "tokens")
        routers = [Routed(block, part[str(block)], part["tokens"]) for block in blocks]
        documents = [n for batch in lab.text.batches for n in batch.documents]
        names = [lab.text.domain_of[number] for number in documents]
        findings: list[Finding] = [_loads("load", "Load", routers), *self._curves(routers)]
        words = [*self._dead_words(routers), *self._spread_words(routers)]
        told = self._by_domain(routers, names)
        past = over_training(lab.subject.trial, self.dead)
        every = (*told.findings, *past.findings)
        return Found([*findings, *every], [*words, *told.words, *past.words])

    def _curves(self, routers: Sequence[Routed]) -> list[Finding]:
        def by_router(name: str, title: str, measure: Callable[[Array], float], unit: str) -> Curve:
            ends = [
                interval(
                    lambda weights, one=one: measure(one.load(weights)), len(one.tokens), self.seed
                )
                or (None, None)
                for one in routers
            ]
            return Curve(
                name=name,
                title=title,
                unit=unit,
                axis="block",
                places=tuple(float(one.block) for one in routers),
                values=row([measure(one.load()) for one in routers]),
                low=tuple(low for low, _ in ends),
                high=tuple(high for _, high in ends),
                words=f"router of block {{}}: {title[0].lower()}{title[1:]}",
            )

        top = f"Share of choices of the busiest {self.busiest:.0%} of experts"
        return [
            by_router("entropy", "Entropy of the load over that of an even one", _evenness, ""),
            by_router("effective", "Effective number of experts", _effective, "experts"),
            by_router("busiest", top, self._top, ""),
            by_router("dead", "Dead experts", lambda load: float(len(self._dead(load))), "experts"),
        ]

    def _top(self, load: Array) -> float:
        return float(np.sort(load)[::-1][: self._counted(len(load))].sum())

    def _counted(self, experts: int) -> int:
        return math.ceil(self.busiest * experts)

    def _dead(self, load: Array) -> list[int]:
        return [int(one) for one in np.nonzero(load * len(load) < self.dead)[0]]

    def _dead_words(self, routers: Sequence[Routed]) -> list[str]:
        said: list[str] = []
        for one in routers:
            load = one.load()
            dead = self._dead(load)
            if dead:
                shares = listed(f"{load[expert] * one.experts:.3g}" for expert in dead)
                said.append(
                    f"Block {one.block}: {spoken('expert', dead)} of {one.experts} "
                    f"{'is' if len(dead) == 1 else 'are'} dead: {shares} of an even share, under "
                    f"{self.dead:g}."
                )
        if said:
            return said
        least = min(routers, key=lambda one: one.load().min() * one.experts)
        load = least.load()
        return [
            f"No expert is dead: the least used, expert {int(load.argmin())} of block "
            f"{least.block}, gets {load.min() * least.experts:.3g} of an even share; dead is under "
            f"{self.dead:g}."
        ]

    def _spread_words(self, routers: Sequence[Routed]) -> list[str]:
        numbers = [(_effective(one.load()), one) for one in routers]
        fallen = [(n, one) for n, one in numbers if n < self.collapsed * one.experts]
        said = [
            f"The router of block {one.block} has collapsed: it uses {n:.2f} of {one.experts} "
            f"experts (effective number), under {self.collapsed:.0%}."
            for n, one in fallen
        ]
        if not fallen:
            least, one = min(numbers, key=lambda pair: pair[0] / pair[1].experts)
            said.append(
                f"No router has collapsed: the narrowest, in block {one.block}, uses {least:.2f} "
                f"of {one.experts} experts (effective number); collapsed is under "
                f"{self.collapsed:.0%}."
            )
        most = max(routers, key=lambda one: self._top(one.load()))
        count = self._counted(most.experts)
        said.append(
            f"The busiest {count} of {most.experts} experts get up to "
            f"{self._top(most.load()):.0%} of the choices (block {most.block}); even loads give "
            f"{count / most.experts:.0%}."
        )
        return said

    def _by_domain(self, routers: Sequence[Routed], names: Sequence[str]) -> Found:
        """Loads by domain, what the domain says of the expert, and what chance gives."""
        order = list(dict.fromkeys(names))
        domains = np.array([order.index(name) for name in names])
        if len(order) < 2:
            return Found(
                [], [f"All text is of one domain ({order[0]}): nothing is said of others."]
            )
        findings: list[Finding] = []
        for number, name in enumerate(order):
            rows = (domains == number).astype(float)
            findings.append(_loads(f"load.{name}", f"Load, {name}", routers, rows))
        found = np.array([one.information(domains) for one in routers])
        generator = np.random.Generator(np.random.Philox(key=self.seed))
        mixed = [generator.permutation(domains) for _ in range(self.shuffles)]
        chance = np.array([[one.information(other) for other in mixed] for one in routers]).mean(1)
        most = _entropy(np.bincount(domains, routers[0].tokens) / routers[0].tokens.sum())
        places = tuple(float(one.block) for one in routers)
        for name, title, values in (
            ("information", "Mutual information of domain and expert", found),
            ("information_shuffled", "The same with documents in random domains", chance),
        ):
            words = f"router of block {{}}: {title[0].lower()}{title[1:]}"
            line = Curve(
                name=name,
                title=title,
                unit="nats",
                axis="block",
                places=places,
                values=row(values),
                words=words,
            )
            findings.append(line)
        findings.append(
            Number(name="domains", title="Entropy of the domains", unit="nats", value=value(most))
        )
        best = int(np.argmax(found - chance))
        above = found[best] - chance[best]
        follows = "follow the domain" if above >= self.informed * most else "hardly know the domain"
        said = [
            f"Experts {follows}: at most {found[best]:.3f} nats of {most:.3f} (block "
            f"{routers[best].block}; {chance[best]:.3f} with documents in random domains; the "
            f"threshold is {self.informed * most:.3f} above that)."
        ]
        return Found(findings, [*said, *self._dead_by_domain(routers, order, domains)])

    def _dead_by_domain(
        self, routers: Sequence[Routed], order: Sequence[str], domains: NDArray[np.int64]
    ) -> list[str]:
        said: list[str] = []
        for number, name in enumerate(order):
            rows = (domains == number).astype(float)
            here = [
                set(self._dead(one.load(rows))) - set(self._dead(one.load())) for one in routers
            ]
            count = sum(map(len, here))
            if count:
                blocks = [one.block for one, some in zip(routers, here, strict=True) if some]
                said.append(
                    f"{counted(count, 'expert')} that others use "
                    f"{'is' if count == 1 else 'are'} dead for {name} ({spoken('block', blocks)})."
                )
        return said


def _effective(load: Array) -> float:
    return effective(load.tolist())


def _evenness(load: Array) -> float:
    """1 for even loads; NaN for a single expert."""
    return _entropy(load) / math.log(len(load)) if len(load) > 1 else math.nan


def _loads(
    name: str, title: str, routers: Sequence[Routed], weights: Array | None = None
) -> Matrix:
    """Share over the even share, by router and expert; NaN where a router has fewer experts."""
    most = max(one.experts for one in routers)
    values = np.full((len(routers), most), np.nan)
    for line, one in zip(values, routers, strict=True):
        line[: one.experts] = one.load(weights) * one.experts
    return Matrix(
        name=name,
        title=f"{title} of each expert over an even share",
        row_axis="block",
        column_axis="expert",
        rows=tuple(float(one.block) for one in routers),
        columns=counted_from(0, most),
        values=table(values),
        centre=1.0,
        words="expert {column} of block {row}: choices over an even share",
    )
