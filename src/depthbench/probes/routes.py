"""Which earlier outputs each branch reads, and how strongly."""

from typing import ClassVar, final

import numpy as np
import torch
from pydantic import Field

from depthbench.probes.lab import Lab, Part, Task
from depthbench.probes.own import OwnSession, OwnSubject
from depthbench.probes.paths import look_back, paths_of
from depthbench.probes.probe import Found, Probe
from depthbench.probes.result import Finding, Matrix, Number, counted_from, curve, table
from depthbench.probes.subject import Subject
from depthbench.probes.walk import Walker


class Weights(Task):
    """Sums over tokens of path weights, of their squares, shares, sizes and look-back."""

    name: ClassVar[str] = "weights"
    length: int
    """Of the longest row, in any batch."""
    shown: int
    """Tokens of document 0 whose look-back is kept one by one."""

    def measure(self, walker: Walker, subject: Subject) -> Part:
        session = walker.session
        assert isinstance(session, OwnSession)
        paths = paths_of(session)
        valid = session.batch.valid
        weights, shares = paths.weights()[:, :, valid], paths.shares()[:, :, valid]
        chances, looked = look_back(weights)
        entropy = -torch.special.xlogy(chances, chances).sum(1)
        rows, places = valid.nonzero().unbind(1)
        positions = looked.new_zeros(len(weights), self.length).index_add_(1, places, looked)
        counts = places.bincount(minlength=self.length).double()
        first = looked.new_zeros(len(weights), self.shown)
        if 0 in session.batch.documents:
            own = looked[:, rows == session.batch.documents.index(0)][:, : self.shown]
            first[:, : own.shape[1]] = own
        found = {
            "weights": weights.sum(-1),
            "squares": weights.square().sum(-1),
            "shares": shares.sum(-1),
            "entropy": entropy.sum(-1),
            "back": looked.sum(-1),
            "first": first,
            "positions": positions,
            "counts": counts,
        }
        return {name: values.cpu().numpy() for name, values in found.items()} | {
            "tokens": np.array(float(valid.sum()))
        }


class Running(Task):
    """By site: sums over tokens of the weight on a running sum; NaN where there is none."""

    name: ClassVar[str] = "running"

    @torch.no_grad()
    def measure(self, walker: Walker, subject: Subject) -> Part:
        session = walker.session
        assert isinstance(session, OwnSession)
        found = []
        for _, route in session.trace().routes:
            weight = route.on_running_sum()
            total = float("nan") if weight is None else weight[session.batch.valid].double().sum()
            found.append(float(total))
        return {"sums": np.array(found)}


@final
class Routes(Probe):
    """Threshold of the dead zone, and tokens that are shown."""

    name: ClassVar[str] = "routes"
    title: ClassVar[str] = "Path weights over depth"
    definition: ClassVar[str] = (
        "w_{i→l} = <part of l's input that comes from output i, output i> / ‖output i‖², with "
        "all coefficients and norm scales held; look-back Σ|w_{i→l}| (l - i) / Σ|w_{i→l}| in sites"
    )
    blind: ClassVar[str] = (
        "A weight says how much is handed on, not whether it is used. What attention mixes over "
        "depth inside itself (moda, value_residual) is not in it."
    )
    reading: ClassVar[str] = (
        "A row is a branch's input, a column an earlier output. Prenorm: rows fade evenly. Weight "
        "far from the diagonal: a site reads outputs of long before. Low entropy: few of them "
        "count."
    )
    source: ClassVar[str] = "arXiv 2603.15031"
    dead: float = Field(default=0.05, gt=0)
    """Weight on the running sum below which a site is in the dead zone."""
    shown: int = Field(default=48, ge=1)
    """Tokens of the first text whose look-back is shown one by one."""

    def refusal(self, subject: Subject) -> str | None:
        if isinstance(subject, OwnSubject):
            return None
        return "path weights need the routes of a design of this package"

    def look(self, lab: Lab) -> Found:
        batches = lab.leading(2 * lab.layers + 1)
        longest = max(batch.tokens.shape[1] for batch in lab.text.batches)
        part = lab.summed(Weights(length=longest, shown=self.shown), batches)
        tokens = part["tokens"]
        mean = part["weights"] / tokens
        spread = np.sqrt(np.clip(part["squares"] / tokens - mean**2, 0, None))
        unseen = np.arange(mean.shape[1]) > np.arange(len(mean))[:, None]
        words = "output {column} in the input of {row}"
        findings: list[Finding] = [
            self._matrix("weight", "Path weight, mean over tokens", mean, unseen, words),
            self._matrix("spread", "Its deviation over tokens", spread, unseen, words),
            self._matrix(
                "share", "Share of the input", part["shares"] / tokens, unseen, "share of " + words
            ),
            curve(
                "sources",
                "Effective number of sources, exp of the weights' entropy",
                np.exp(part["entropy"] / tokens),
                "site",
                unit="sources",
                words="site {}: effective number of sources",
            ),
            curve(
                "back",
                "Mean look-back",
                part["back"] / tokens,
                "site",
                unit="sites",
                words="site {}: mean look-back",
            ),
        ]
        findings += self._by_token(lab, part)
        dead, words = self._dead_zone(lab, batches)
        return Found([*findings, *dead], words)

    def _matrix(
        self, name: str, title: str, values: np.ndarray, unseen: np.ndarray, words: str
    ) -> Matrix:
        targets, sources = values.shape
        return Matrix(
            name=name,
            title=title,
            row_axis="reading site (the last is the readout)",
            column_axis="source (0 is the embedding, then sites from 1)",
            rows=counted_from(0, targets),
            columns=counted_from(0, sources),
            values=table(np.where(unseen, np.nan, values)),
            centre=0.0,
            words=words,
        )

    def _by_token(self, lab: Lab, part: Part) -> list[Finding]:
        """Look-back by position in the text, and of single tokens."""
        known = part["counts"] > 0
        by_place = part["positions"][:, known].mean(0) / part["counts"][known]
        places = tuple(float(one) for one in np.nonzero(known)[0])
        back = part["first"][:, : int(lab.text.batches[0].valid[0].sum())]
        return [
            curve(
                "back_by_position",
                "Mean look-back of all sites by position in the text",
                by_place,
                "position",
                unit="sites",
                words="position {}: mean look-back",
            ).model_copy(update={"places": places}),
            Matrix(
                name="back_by_token",
                title="Look-back of the first tokens of the first text",
                unit="sites",
                row_axis="reading site",
                column_axis="token",
                rows=counted_from(0, len(back)),
                columns=counted_from(0, back.shape[1]),
                values=table(back),
                words="token {column} at site {row}: look-back",
            ),
        ]

    def _dead_zone(self, lab: Lab, batches: range) -> tuple[list[Finding], list[str]]:
        sums = lab.summed(Running(), batches)["sums"] / lab.tokens(batches)
        sites = np.nonzero(~np.isnan(sums))[0]
        if not len(sites):
            return [], []
        low = sums[sites] < self.dead
        leading = int(np.argmin(low)) if not low.all() else len(sites)
        said = f"Of {len(sites)} sites that weigh a running sum, the first {leading} give it under "
        return [
            curve(
                "running",
                "Weight on the running sum",
                sums,
                "site",
                words="site {}: weight on the running sum",
            ),
            Number(name="dead_zone", title="Sites of the dead zone", unit="sites", value=leading),
        ], [said + f"{self.dead:g}."]
