"""One trial: train a model on a dataset, watch it, and say how it ended."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from depthbench.data.dataset import Dataset
from depthbench.data.loss import LossSum
from depthbench.errors import DepthbenchError
from depthbench.files import make_folder, write_atomic
from depthbench.train.checkpoint import (
    Checkpoint,
    newest,
    prune,
    read,
    remove,
    remove_after,
    save,
    sweep,
)
from depthbench.train.config import TrialConfig
from depthbench.train.health.monitor import Monitor
from depthbench.train.metrics import Listener, Metrics
from depthbench.train.outcome import Divergence, Outcome, Step, is_finite
from depthbench.train.step import (
    Learner,
    like_parameter,
    optimizer_tensors,
    restore_optimizer,
)
from depthbench.train.team import Solo, Team

Status = Literal["done", "diverged", "stopped"]

Report = Callable[[int, int], None]
"""``report(steps, tokens)`` is called as training goes on."""


class Trial:
    """A model, its optimizer and its data, ready to be trained once."""

    def __init__(
        self,
        config: TrialConfig,
        dataset: Dataset,
        folder: Path,
        listeners: Sequence[Listener] = (),
        team: Team | None = None,
        weights: dict[str, Tensor] | None = None,
    ) -> None:
        """``team``: the processes that train it together; this one alone unless given. ``weights``:
        of a model that training begins with, as the config says.

        Raises `DepthbenchError` if data and model do not fit together.
        """
        vocab = config.model.shape.vocab
        if dataset.vocab > vocab:
            raise DepthbenchError(
                f"the tokenizer has {dataset.vocab} tokens but shape.vocab = {vocab}. "
                f"Set vocab to at least {dataset.vocab}"
            )
        self.config, self.folder = config, folder
        self.team = team or Solo()
        self.weights = weights
        self.learner = Learner(config, dataset, self.team)
        self.notes = self.team.notes()
        self.monitor = Monitor(config.train, folder)
        # first, so that others find its file up to date
        self.metrics = Metrics(folder, [self.monitor, *listeners])
        self.validation = dataset.validation(config.train.length, config.train.validation_tokens)
        self.divergence = Divergence(config.train)
        self.done = 0
        self.loss = float("nan")
        self.seconds = 0.0
        self.domains: dict[str, LossSum] = {}
        self.best: tuple[int, float] | None = None
        """Step and validation loss of the best checkpoint."""

    @property
    def checkpoints(self) -> Path:
        """Folder of the trial's checkpoints."""
        return self.folder / "checkpoints"

    def run(
        self,
        report: Report,
        *,
        resume: bool | Path = False,
        stop: Callable[[], bool] = lambda: False,
    ) -> Outcome:
        """Train to the end, to divergence, or until ``stop()`` is true after a step.

        ``resume`` goes on from the last whole checkpoint of this very config, if there is one, or
        from the one in the folder it names; the result is that of a run that was never
        interrupted, bit for bit in one process on CPU.
        """
        if self.team.main:
            make_folder(self.folder)
            text = json.dumps(self.config.resolved(), indent=2) + "\n"
            write_atomic(self.folder / "config.json", text)
        self._begin(resume)
        outcome = self._train(report, stop)
        if self.team.main:
            self.metrics.end(outcome)
        return outcome

    def _train(self, report: Report, stop: Callable[[], bool]) -> Outcome:
        train = self.config.train
        evaluations = train.evaluation_steps()
        while self.done < train.steps:
            started = time.perf_counter()
            made = self.learner.step(self.done)
            self.loss = made.loss
            self.seconds += time.perf_counter() - started
            self.done += 1
            reason = self.divergence.check(self.done - 1, made.loss, made.grad_norm)
            spikes = self._spikes(made)
            record = self._record(made) | spikes
            if reason is not None:
                self._log(record | self._health_record())
                self._remove()
                return self._outcome("diverged", reason)
            measured = self.done in evaluations or self.monitor.measures(self.done)
            if self.done in evaluations:
                self.domains = self.evaluate()
                record |= self._validation_record()
            if measured:
                record |= self._health_record()
            if measured or spikes or self.done == 1 or self.done % train.log_every == 0:
                self._log(record)
                report(self.done, self._tokens(self.done))
            stopped = self.done < train.steps and self.team.totals([stop()]) != [0]
            if stopped or (train.save_every and self.done % train.save_every == 0):
                self.save()
            if stopped:
                return self._outcome("stopped", f"stopped after step {self.done}")
        return self._end()

    def _begin(self, resume: bool | Path) -> None:
        """State of step 0, or of the last checkpoint; metrics of later steps are cut off."""
        path, notes = self.team.told(self._found(resume) if self.team.main else (None, []))
        self.notes += notes
        count = 0
        if path is None:
            # what the process drew before must not show in what it saves
            torch.manual_seed(self.config.seed % 2**63)
            self._remove()
            if self.weights is not None:
                model = self.learner.model
                own = model.state_dict()
                model.load_state_dict(
                    {name: self.team.place(own[name], one) for name, one in self.weights.items()}
                )
        else:
            found = read(path)
            count = found.manifest.state["records"]
            self._restore(found)
        if self.team.main:
            # of an earlier step that was named, the later ones are another future
            remove_after(self.checkpoints, self.done)
            self.notes += self.metrics.begin(self.config, self.done, count)

    def _found(self, resume: bool | Path) -> tuple[Path | None, list[str]]:
        sweep(self.checkpoints)
        if isinstance(resume, bool):
            found, notes = newest(self.checkpoints, self.config.id) if resume else (None, [])
            return (None if found is None else found.path), notes
        found = read(resume)
        if found.manifest.config != self.config.id:
            raise DepthbenchError(
                f"{resume} is a checkpoint of another config (its trial is "
                f"{found.manifest.config}, this one {self.config.id}). Use the settings that it "
                "was made with, or --resume never"
            )
        return resume, []

    def _remove(self) -> None:
        """All checkpoints: of a trial that starts anew, has diverged, or keeps none."""
        if self.team.main:
            remove(self.checkpoints)

    def save(self) -> None:
        """A checkpoint of now; the best is the one of the least validation loss so far."""
        here = _together(self.domains)
        if here.tokens and (self.best is None or here.nats_per_token < self.best[1]):
            self.best = (self.done, here.nats_per_token)
        model, optimizer = self.learner.model, self.learner.optimizer
        tensors = {
            "model": model.state_dict(),
            "optimizer": optimizer_tensors(model, optimizer),
            "rng": {"torch": torch.get_rng_state()},
        }
        state = {
            "loss": self.loss if is_finite(self.loss) else None,
            "start_loss": self.divergence.start,
            "above_start": self.divergence.above,
            "seconds": self.seconds,
            "domains": {name: asdict(part) for name, part in self.domains.items()},
            "best": self.best,
            "health": self.monitor.state(),
            "records": self.team.told(self.metrics.count),
        }
        save(self.checkpoints, self.done, self.config.id, tensors, state, self.team)
        best = self.best[0] if self.best and self.config.train.keep_best else None
        if self.team.main:
            prune(self.checkpoints, self.config.train.keep_last, best)

    def _restore(self, found: Checkpoint) -> None:
        state, model, optimizer = found.manifest.state, self.learner.model, self.learner.optimizer
        model.load_state_dict(self.team.read(found, "model", model.state_dict().get))
        moments = self.team.read(found, "optimizer", like_parameter(model))
        restore_optimizer(model, optimizer, moments)
        torch.set_rng_state(found.tensors("rng")["torch"])
        self.done = found.manifest.step
        self.loss = float("nan") if state["loss"] is None else state["loss"]
        self.divergence.start = state["start_loss"]
        self.divergence.above = state["above_start"]
        self.seconds = state["seconds"]
        self.domains = {name: LossSum(**part) for name, part in state["domains"].items()}
        self.best = None if state["best"] is None else (state["best"][0], state["best"][1])
        self.monitor.restore(state["health"])

    def _outcome(self, status: Status, reason: str | None = None) -> Outcome:
        tokens = self._tokens(self.done)
        notes = [*self.learner.notes, *self.notes]
        return Outcome(status, self.done, tokens, self.seconds, reason, notes=notes)

    def _end(self) -> Outcome:
        outcome = self._outcome("done")
        outcome.final_train_loss, outcome.domains = self.loss, self.domains
        if not is_finite(_together(self.domains).nats_per_token):
            outcome.status, outcome.reason = "diverged", "the validation loss is not finite"
        elif self.config.train.save_model:
            self.save()
            return outcome
        self._remove()
        return outcome

    def _record(self, made: Step) -> dict[str, Any]:
        """The step's metrics; what depends on the clock goes to ``timing.jsonl``."""
        record: dict[str, Any] = {
            "step": self.done,
            "tokens": self._tokens(self.done),
            "train_loss": made.loss if is_finite(made.loss) else None,
            "grad_norm": made.grad_norm if is_finite(made.grad_norm) else None,
            "learning_rate": made.rate,
        }
        if made.router_penalty is not None:
            penalty = made.router_penalty
            record["router_penalty"] = penalty if is_finite(penalty) else None
        return record

    def _tokens(self, steps: int) -> int:
        return steps * self.config.train.sequences * self.config.train.length

    def evaluate(self) -> dict[str, LossSum]:
        """Loss on the fixed validation tokens of every domain."""
        return {name: self.learner.loss_on(texts) for name, texts in self.validation.items()}

    def _validation_record(self) -> dict[str, Any]:
        total, domains = _together(self.domains), self.domains
        if not is_finite(total.nats_per_token):
            return {"loss": None}
        return {
            "loss": total.domain_loss().resolved(),
            "domains": {name: part.domain_loss().resolved() for name, part in domains.items()},
        }

    def _health_record(self) -> dict[str, Any]:
        sequences = self.config.train.health.sequences
        tokens: Tensor = next(iter(self.validation.values())).inputs[:sequences]
        return {"health": self.learner.health(tokens).record()}

    def _spikes(self, made: Step) -> dict[str, Any]:
        """What stands out in this step, where anything does."""
        seen = self.monitor.sees_updates(self.done) and is_finite(made.grad_norm)
        return self.monitor.watch(self.done, made, self.learner.update_norms() if seen else None)

    def _log(self, record: dict[str, Any]) -> None:
        if self.team.main:
            self.metrics.add(record, self.seconds, self._tokens(self.done))


def _together(domains: dict[str, LossSum]) -> LossSum:
    return sum(domains.values(), LossSum())
