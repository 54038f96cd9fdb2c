"""Blocks replaced by their best linear map: is there more to them?"""

import hashlib
import tempfile
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from safetensors.numpy import load_file, save_file

from depthbench.config import digest_of
from depthbench.probes.lab import Lab, Part, Task
from depthbench.probes.loss import by_row, token_losses
from depthbench.probes.measures import Losses, call_of, in_groups
from depthbench.probes.probe import Found, LackingError, Probe
from depthbench.probes.program import only, plain
from depthbench.probes.result import Number, curve
from depthbench.probes.subject import Subject
from depthbench.probes.walk import Walker


class Moments(Task):
    """Sums over tokens of ``z zᵀ`` and ``z yᵀ`` for each block and each of its outputs."""

    name: ClassVar[str] = "moments"
    blocks: tuple[int, ...]

    @torch.no_grad()
    def measure(self, walker: Walker, subject: Subject) -> Part:
        session = walker.session
        batch = session.batch
        found: Part = {}
        for block in self.blocks:
            state = walker.states[block]
            z = batch.text(session.depth_state(state)).double()
            _, outputs = session.outputs(call_of(block), state)
            found[f"zz.{block}"] = (z.T @ z).cpu().numpy()
            for number, output in enumerate(outputs):
                y = batch.text(output).double()
                found[f"zy.{block}.{number}"] = (z.T @ y).cpu().numpy()
        return found


class Replaced(Task):
    """Loss by row with each block replaced by the maps in a file."""

    name: ClassVar[str] = "replaced"
    file: str
    content: str
    """SHA-256 of the file."""

    def key(self) -> str:
        return digest_of([self.name, self.content])

    def measure(self, walker: Walker, subject: Subject) -> Part:
        session = walker.session
        maps: dict[int, list[torch.Tensor]] = {}
        for name, one in sorted(load_file(self.file).items()):
            block = int(name.split(".")[0])
            moved = torch.from_numpy(one).to(subject.device, subject.dtype)
            maps.setdefault(block, []).append(moved)
        session.maps = maps
        blocks = sorted(maps)
        programs = [only(walker.layers, block, "linear") for block in blocks]
        nats = np.zeros((len(blocks), session.batch.rows))
        for number, state in walker.ends(programs):
            with torch.no_grad():
                nats[number] = by_row(session.batch, token_losses(session, state)).cpu().numpy()
        return {"nats": nats}


@final
class Usefulness(Probe):
    """The published threshold is an option."""

    name: ClassVar[str] = "usefulness"
    title: ClassVar[str] = "Loss when a block is replaced by a linear map"
    definition: ClassVar[str] = (
        "loss(the outputs of block s replaced by their least-squares linear maps of the depth "
        "state) / loss - 1; maps fitted on every other batch, loss on the rest"
    )
    blind: ClassVar[str] = (
        "A linear map sees one token at a time: what an attention brings from others is lost "
        "even if it is linear. With few tokens the maps are poor, and blocks look useful."
    )
    reading: ClassVar[str] = (
        "Growth under the threshold: a linear map of the state does as well, so the block's non- "
        "linearity is not used on this text. Look at the number of tokens first."
    )
    source: ClassVar[str] = "arXiv 2505.13898"
    threshold: float = Field(default=0.10, gt=0)
    """Growth of the loss from which on a block is useful."""

    def look(self, lab: Lab) -> Found:
        chosen = lab.leading(lab.layers, least=2)
        if len(chosen) < 2:
            raise LackingError(
                "usefulness fits on one half of the batches and measures on the other, but the "
                "text is one batch. Ask for more --tokens"
            )
        fit, test = chosen[::2], chosen[1::2]
        growth = np.zeros(lab.layers)
        base = lab.joined(Losses(programs=(plain(lab.layers),)), test)
        average = base["nats"][0].sum()
        for blocks in in_groups(lab, list(range(lab.layers)), matrices=3):
            sums = lab.summed(Moments(blocks=tuple(blocks)), fit)
            with tempfile.TemporaryDirectory() as folder:
                task = replacing(Path(folder), {block: solved(sums, block) for block in blocks})
                growth[blocks] = lab.joined(task, test)["nats"].sum(-1) / average - 1
        tokens = lab.tokens(fit)
        width = lab.subject.facts.width * lab.subject.facts.streams
        words = [f"The maps were fitted on {tokens} tokens; the depth state has {width} numbers."]
        if tokens < 4 * width:
            words.append("Under four tokens a number: the maps fit noise, so blocks look useful.")
        useful = int((growth > self.threshold).sum())
        return Found(
            [
                curve(
                    "growth",
                    self.title,
                    growth,
                    unit="of the loss",
                    words="block {} replaced by linear maps: growth of the loss",
                ),
                Number(
                    name="useful",
                    title=f"Blocks without which the loss grows over {self.threshold:.0%}",
                    unit="blocks",
                    value=useful,
                ),
            ],
            words,
        )


def replacing(folder: Path, maps: dict[int, tuple[NDArray[np.float64], ...]]) -> Replaced:
    """The task for these maps, which it reads from a file in ``folder``."""
    file = folder / "maps.safetensors"
    named = {f"{block}.{n}": one for block, each in maps.items() for n, one in enumerate(each)}
    save_file(named, file)
    return Replaced(file=str(file), content=hashlib.sha256(file.read_bytes()).hexdigest())


def solved(sums: Part, block: int) -> tuple[NDArray[np.float64], ...]:
    """Least-squares maps of one block, of least norm where the tokens do not fix them."""
    inverse = np.linalg.pinv(sums[f"zz.{block}"], rcond=1e-10, hermitian=True)
    outputs = sorted(name for name in sums if name.startswith(f"zy.{block}."))
    return tuple(inverse @ sums[name] for name in outputs)
