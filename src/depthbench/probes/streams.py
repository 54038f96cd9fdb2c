"""Streams side by side: do they stay different, and do their mixes forget?"""

from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from depthbench.probes.lab import Lab, Part, Task
from depthbench.probes.measures import unit
from depthbench.probes.mixing import effective_rank, mixing_product
from depthbench.probes.own import OwnSession
from depthbench.probes.probe import Found, StreamsProbe
from depthbench.probes.result import Finding, Number, curve, matrix
from depthbench.probes.subject import Subject
from depthbench.probes.walk import Walker


class Alike(Task):
    """Sums over tokens of the cosines between streams, and of the streams' sizes, by depth."""

    name: ClassVar[str] = "alike"

    @torch.no_grad()
    def measure(self, walker: Walker, subject: Subject) -> Part:
        session, count = walker.session, subject.facts.streams
        cosines, sizes = [], []
        for state in walker.states:
            z = session.batch.text(session.depth_state(state)).unflatten(-1, (count, -1))
            units = unit(z)
            cosines.append((units @ units.mT).sum(0))
            sizes.append(z.double().norm(dim=-1).sum(0))
        return {
            "cosines": torch.stack(cosines).cpu().numpy(),
            "sizes": torch.stack(sizes).cpu().numpy(),
        }


class Products(Task):
    """Sums over tokens, by site: ranks of the mixes' product so far, and errors of their sums."""

    name: ClassVar[str] = "products"

    @torch.no_grad()
    def measure(self, walker: Walker, subject: Subject) -> Part:
        session = walker.session
        assert isinstance(session, OwnSession)
        valid = session.batch.valid
        mixes = [mix for _, route in session.trace().routes for mix in route.mixes()]
        if not mixes:
            return {"mixes": np.array(0.0)}
        of_tokens = [_by_token(mix, valid).double() for mix in mixes]
        product: Tensor | None = None
        ranks, centred, errors, values = [], [], [], torch.zeros(0)
        for mix in of_tokens:
            product = mix if product is None else mixing_product([product, mix])
            ranks.append(effective_rank(product).sum())
            centred.append(effective_rank(product, without_mean=True).sum())
            sums = torch.cat([mix.sum(-1), mix.sum(-2)], dim=-1)
            errors.append((sums - 1).abs().amax(-1).sum())
            values = torch.linalg.svdvals(product)
        shares = values / values.sum(-1, keepdim=True)
        found = {
            "mixes": torch.tensor(float(len(mixes))),
            "ranks": torch.stack(ranks),
            "centred": torch.stack(centred),
            "errors": torch.stack(errors),
            "values": shares.sum(0),
            "sums": torch.stack([mix.sum(0) for mix in of_tokens]),
        }
        return {name: one.cpu().numpy() for name, one in found.items()}


def _by_token(mix: Tensor, valid: Tensor) -> Tensor:
    """``(n, s, s)``: one for each token of text, also where all tokens share it."""
    whole = mix.expand(*valid.shape, *mix.shape[-2:]) if mix.ndim == 2 else mix
    return whole[valid]


@final
class Streams(StreamsProbe):
    """No options."""

    name: ClassVar[str] = "streams"
    title: ClassVar[str] = "Residual streams by depth"
    definition: ClassVar[str] = (
        "cosine between streams, mean over tokens; product A_1 … A_l of the mixing matrices of "
        "each token in float64: shares p of its singular values, effective rank exp(-Σ p ln p), "
        "with and without the all-ones direction; largest error of a row or column sum"
    )
    blind: ClassVar[str] = (
        "Streams that point apart may still hold the same information, and the other way round. "
        "A product of rank 1 says what the mixes forget, not what branches write anew."
    )
    reading: ClassVar[str] = (
        "Cosine near 1: the streams hold the same. Effective rank near 1: the mixes alone would "
        "make one stream of all. Row and column errors belong near 0 for mhc."
    )
    source: ClassVar[str] = "arXiv 2409.19606; arXiv 2512.24880"

    def look(self, lab: Lab) -> Found:
        tokens, count = lab.tokens(lab.batches), lab.subject.facts.streams
        part = lab.summed(Alike())
        cosines = part["cosines"] / tokens
        others = ~np.eye(count, dtype=bool)
        findings: list[Finding] = [
            curve(
                "cosine",
                "Mean cosine between two streams",
                cosines[:, others].mean(1),
                "depth",
                words="depth {}: mean cosine between streams",
            ),
            matrix(
                "cosines",
                "Cosine between streams at the last depth",
                cosines[-1],
                ("stream", "stream"),
                words="streams {row} and {column} at the last depth: cosine",
            ),
            matrix(
                "sizes",
                "Mean norm of each stream",
                (part["sizes"] / tokens).T,
                ("stream", "depth"),
                words="stream {row} at depth {column}: mean norm",
            ),
        ]
        if lab.subject.facts.kind == "depthbench":
            findings += self._products(lab, tokens)
        return Found(findings)

    def _products(self, lab: Lab, tokens: int) -> list[Finding]:
        part = lab.summed(Products())
        if not part["mixes"].any():
            return []
        static = [torch.from_numpy(one / tokens) for one in part["sums"]]
        of_means = mixing_product(static)
        of_tokens = part["values"] / tokens
        return [
            curve(
                "rank",
                "Effective rank of the product of all mixes so far",
                part["ranks"] / tokens,
                "site",
                unit=f"of {len(of_tokens)}",
                words="behind site {}: effective rank of the product",
            ),
            curve(
                "rank_centred",
                "The same without the all-ones direction",
                part["centred"] / tokens,
                "site",
                words="behind site {}: effective rank without the mean",
            ),
            curve(
                "error",
                "Largest error of a row or column sum",
                part["errors"] / tokens,
                "site",
                words="site {}: error of a row or column sum",
            ),
            curve(
                "spectrum",
                "Singular values of the whole product, share of their sum",
                of_tokens,
                "number",
                words="singular value {}: share",
            ),
            Number(
                name="static_rank",
                title="Effective rank of the product of the mean mixes",
                unit=f"of {len(of_tokens)}",
                value=float(effective_rank(of_means)),
            ),
            Number(
                name="static_rank_centred",
                title="The same without the all-ones direction",
                unit=f"of {len(of_tokens) - 1}",
                value=float(effective_rank(of_means, without_mean=True)),
            ),
        ]
