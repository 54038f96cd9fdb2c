"""Derivatives of each block: how far is it from the identity?"""

from typing import Any, ClassVar, final

import numpy as np
import torch
import torch.autograd.forward_ad as forward
from pydantic import Field
from torch import Tensor

from depthbench.probes.batch import Batch
from depthbench.probes.lab import Lab, Part, Task
from depthbench.probes.measures import call_of
from depthbench.probes.probe import Found, LackingError, Probe
from depthbench.probes.result import curve, matrix
from depthbench.probes.subject import Session, Subject
from depthbench.probes.walk import Walker

AT_A_TIME = 32
"""Derivatives that are formed together."""
FULL = 1024
"""Width above which no matrix is formed."""


class Derivatives(Task):
    """Of a block at one token of each row: ``‖J - I‖_F² / w``, and the largest singular values."""

    name: ClassVar[str] = "derivatives"
    context: int
    exact: int
    values: int
    seed: int

    def measure(self, walker: Walker, subject: Subject) -> Part:
        batch = shortened(walker.session.batch, self.context)
        if batch is None:
            empty = np.zeros((walker.layers, 0))
            return {"distance": empty, "spectrum": np.zeros((self.values, walker.layers, 0))}
        session = subject.session(batch)
        distances, spectra = [], []
        with session.differentiable():
            with torch.no_grad():
                state = session.open()
            for block in range(walker.layers):
                generator = torch.Generator().manual_seed(self.seed + block)
                distance, spectrum = self._block(session, block, state, generator)
                distances.append(distance)
                spectra.append(spectrum)
                with torch.no_grad():
                    state = session.run(call_of(block), state, 1)
        return {
            "distance": torch.stack(distances).cpu().numpy(),
            "spectrum": torch.stack(spectra, dim=1).cpu().numpy(),
        }

    def _block(
        self, session: Session[Any], block: int, state: Any, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """By row: squared distance over the width; ``(values, rows)`` singular values."""
        at = LastToken(session, block, state)
        if at.width <= self.exact:
            jacobian = at.full()
            eye = torch.eye(at.width, dtype=jacobian.dtype, device=jacobian.device)
            distance = (jacobian - eye).square().sum((1, 2)) / at.width
            values = torch.linalg.svdvals(jacobian)
        else:
            draws = torch.randn(self.values, at.width, generator=generator).to(
                session.batch.tokens.device
            )
            draws = draws.unsqueeze(1).expand(-1, at.rows, -1).to(at.dtype)
            rows = at.transposed(draws)
            # E ‖(Jᵀ - I) v‖² = ‖J - I‖_F² for v of unit variance
            distance = (rows - draws).double().square().sum(-1).mean(0) / at.width
            basis = torch.linalg.qr(rows.permute(1, 2, 0).double()).Q
            images = at.forward(basis.permute(2, 0, 1).to(at.dtype))
            values = torch.linalg.svdvals(images.permute(1, 2, 0).double())
        kept = torch.full((self.values, at.rows), float("nan"), dtype=torch.float64)
        shown = values[:, : self.values].T.double()
        kept[: len(shown)] = shown
        return distance.double(), kept


class LastToken:
    """``z_t ↦ z'_t`` of one block at the last token ``t`` of each row, all else held."""

    def __init__(self, session: Session[Any], block: int, state: Any) -> None:
        self.session, self.block, self.state = session, block, state
        with torch.no_grad():
            self.z = session.depth_state(state)
        self.rows, _, self.width = self.z.shape
        self.dtype = self.z.dtype

    def _after(self, z: Tensor) -> Tensor:
        state = self.session.with_depth_state(self.state, z)
        return self.session.depth_state(self.session.run(call_of(self.block), state, 1))[:, -1]

    def full(self) -> Tensor:
        """``J`` of every row, in float64."""
        unit = torch.eye(self.width, dtype=self.dtype, device=self.z.device)
        each = self.transposed(unit.unsqueeze(1).expand(-1, self.rows, -1))
        return each.permute(1, 0, 2).double()

    def transposed(self, vectors: Tensor) -> Tensor:
        """``Jᵀ v`` of each row of ``vectors`` ``(k, rows, w)``."""
        with torch.enable_grad():
            z = self.z.detach().clone().requires_grad_()
            after = self._after(z)
            found = [
                torch.autograd.grad(after, z, part, retain_graph=True, is_grads_batched=True)[0][
                    :, :, -1
                ]
                for part in vectors.split(AT_A_TIME)
            ]
        return torch.cat(found).detach()

    def forward(self, vectors: Tensor) -> Tensor:
        """``J v`` of each row of ``vectors`` ``(k, rows, w)``."""
        found: list[Tensor] = []
        with torch.no_grad():
            for vector in vectors:
                along = torch.zeros_like(self.z)
                along[:, -1] = vector
                with forward.dual_level():
                    after = forward.unpack_dual(self._after(forward.make_dual(self.z, along)))
                    assert after.tangent is not None
                    found.append(after.tangent.clone())
        return torch.stack(found)


def shortened(batch: Batch, context: int) -> Batch | None:
    """The first ``context`` tokens of the rows that have so many; None where none has."""
    starts = batch.valid.int().argmax(dim=1)
    lengths = batch.valid.sum(dim=1)
    rows = [
        (batch.tokens[row, start : start + context], batch.documents[row])
        for row, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True))
        if length >= context
    ]
    if not rows:
        return None
    return Batch.of_rows([one.tolist() for one, _ in rows], documents=[two for _, two in rows])


@final
class Jacobian(Probe):
    """How many tokens come before, how many texts, and when the spectrum is estimated."""

    name: ClassVar[str] = "jacobian"
    title: ClassVar[str] = "Distance of each block from the identity"
    definition: ClassVar[str] = (
        "J = ∂z_{l+1} / ∂z_l at one token, all other tokens held: ‖J - I‖_F / sqrt(w), and the "
        "singular values of J; mean over texts, at the last of their first tokens"
    )
    blind: ClassVar[str] = (
        "It is the block's answer to the smallest changes at the same token; what flows to other "
        "tokens, and what large changes do, is not in it."
    )
    reading: ClassVar[str] = (
        "Near 0: the block is the identity for small changes. A spectrum near 1 throughout passes "
        "gradients on; one with a long lower tail forgets directions."
    )
    source: ClassVar[str] = "arXiv 2505.13898"
    context: int = Field(default=32, ge=1)
    """Tokens of each text; the last is where J is formed."""
    texts: int = Field(default=4, ge=1)
    """Texts, at most."""
    exact: int = Field(default=256, ge=1, le=FULL)
    """Width up to which the whole matrix is formed; above, products with random vectors."""
    values: int = Field(default=32, ge=1)
    """Singular values that are kept, and random vectors above ``exact``."""

    def look(self, lab: Lab) -> Found:
        task = Derivatives(
            context=self.context, exact=self.exact, values=self.values, seed=self.seed
        )
        chosen, rows = [], 0
        for number, batch in enumerate(lab.text.batches):
            if rows < self.texts and shortened(batch, self.context) is not None:
                chosen.append(number)
                rows += batch.rows
        if not chosen:
            raise LackingError(
                f"jacobian needs a text of {self.context} tokens, and there is none. Give longer "
                "texts, or a larger --length"
            )
        part = lab.joined(task, chosen)
        distance = np.sqrt(part["distance"])
        facts = lab.subject.facts
        width = facts.width * facts.streams
        words = []
        if width > self.exact:
            words.append(
                f"The state is {width} wide: distance and spectrum are estimates from "
                f"{self.values} random vectors."
            )
        shown = ~np.isnan(part["spectrum"]).all((1, 2))
        return Found(
            [
                curve(
                    "distance",
                    self.title,
                    distance.mean(1),
                    unit="‖J - I‖_F / sqrt(w)",
                    words="block {}: distance from the identity",
                ),
                matrix(
                    "spectrum",
                    "Largest singular values of J",
                    part["spectrum"][shown].mean(-1),
                    ("number", "block"),
                    centre=1.0,
                    words="singular value {row} of block {column}",
                ),
            ],
            words,
        )

    def refusal(self, subject: Subject) -> str | None:
        return subject.no_jacobian()
