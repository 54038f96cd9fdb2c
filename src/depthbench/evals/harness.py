"""Models of this package, and all that it opens, in EleutherAI's lm-evaluation-harness.

``python -m depthbench.evals.harness run --model depthbench --model_args model=runs/run --tasks …``
is its own command with the model known.
"""

import importlib.metadata
import logging
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, final

from lm_eval import simple_evaluate, utils
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import model_registry
from lm_eval.tasks import TaskManager
from pydantic import Field

from depthbench.config import Frozen, digest_of
from depthbench.data.sources import Document
from depthbench.errors import DepthbenchError, nearest
from depthbench.evals.accuracy import Z, wilson
from depthbench.evals.domains import check_vocabulary
from depthbench.evals.generate import stream
from depthbench.evals.measure import Machinery
from depthbench.evals.programs import Asked, Edit, edits_of
from depthbench.evals.result import Measured
from depthbench.evals.score import scores_of
from depthbench.evals.windows import Window
from depthbench.machine import describe
from depthbench.nn.generate import Sampling
from depthbench.probes.load import open_model
from depthbench.probes.reader import Reader
from depthbench.probes.result import Number
from depthbench.probes.subject import Subject

NAME = "depthbench"
LOG = logging.getLogger(__name__)
LONGEST = 2048
SHARES = ("acc", "acc_norm", "exact_match")
"""Metrics that are shares of questions, answered right or not."""
"""Tokens of a row of a model that reads any number, as the harness has it."""
UNTOLD = "cuda:0"
"""Device of the harness's command where it is told none: the CPU where there is no such device."""
NEW = 256
"""Tokens of an answer unless its task says otherwise, as the harness has it."""


class HarnessConfig(Frozen):
    """Which tasks of the harness, and how."""

    tasks: tuple[str, ...] = Field(min_length=1)
    """Names of tasks or groups."""
    include_path: str | None = None
    """Folder with task files of your own."""
    shots: int | None = Field(default=None, ge=0)
    """Examples in front of each question; None = what the task says."""
    limit: int | None = Field(default=None, ge=1)
    """Questions of each task, the first ones; None = all."""


@final
class DepthbenchLM(TemplateLM):
    """A subject under one program."""

    def __init__(
        self,
        model: str | Subject,
        reader: Reader | None = None,
        edit: Edit | None = None,
        batch_size: int | str = 8,
        max_length: int | str | None = None,
        device: str = "cpu",
        dtype: str = "float32",
        add_bos_token: bool | None = None,
        **changes: str,
    ) -> None:
        """``model`` is a subject with its ``reader``, or what `depthbench.load` opens.

        ``max_length`` is what the model reads, or was trained on, unless given. ``add_bos_token``
        puts the token that begins a text in front of every context; None = if the tokenizer does.
        ``changes`` are ``skip``, ``swap``, ``repeat`` and ``program``, as on the command line, with
        ``+`` for a comma. Raises `DepthbenchError` for what they do not allow.
        """
        super().__init__()
        if isinstance(model, str):
            place = "auto" if device == UNTOLD else device or "cpu"
            opened = open_model(model, device=place, dtype=dtype)
            LOG.info("depthbench: %s on %s", model, opened.subject.device)
            model, reader = opened.subject, opened.reader()
        assert reader is not None
        asked = {name: str(value).replace("+", ",") for name, value in changes.items()}
        self.subject, self.reader = model, reader
        self.edit = edit or edits_of(Asked.parse(asked, "model_args"), model.layers)[0]
        self.rows = int(batch_size or 8)
        self.max_length = int(max_length or reader.longest or reader.trained or LONGEST)
        policy = {None: "model", True: "always", False: "never"}[add_bos_token]
        self.front = reader.start(policy)
        check_vocabulary(reader)
        self.notes: dict[str, None] = {}
        """What was done otherwise than asked for, once each."""

    @property
    def eot_token_id(self) -> int:
        """The token that ends a text, or begins the next."""
        return self.reader.coder.document if self.reader.end is None else self.reader.end

    @property
    def prefix_token_id(self) -> int:
        """What stands in front of a text without context."""
        found = self.reader.start("always")
        return self.eot_token_id if found is None else found

    @property
    def tokenizer_name(self) -> str:
        return self.reader.coder.description

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **kwargs: Any
    ) -> list[int]:
        """Special tokens within ``string`` are plain text; one may stand in front."""
        document = Document("a text of the task", string.encode(errors="surrogateescape"))
        found = self.reader.coder.inexact_ids(document).tolist() if string else []
        return found if add_special_tokens is False or self.front is None else [self.front, *found]

    def _loglikelihood_tokens(
        self, requests: Sequence[Any], disable_tqdm: bool = False, **kwargs: Any
    ) -> list[tuple[float, bool]]:
        windows: list[Window] = []
        for number, (_, context, continuation) in enumerate(requests):
            row = (*context, *continuation)[-self.max_length - 1 :]
            first = len(row) - len(continuation)
            if first < 1 or not continuation:
                raise DepthbenchError(
                    f"an answer of {len(continuation)} tokens does not fit a row of "
                    f"{self.max_length}. Use another task, or a model that reads more"
                )
            windows.append(Window(row, first, number, 0))
        scores = scores_of(self.subject, windows, [self.edit.program], self.rows)
        pairs = zip(-scores.nats[0], scores.greedy[0], strict=True)
        found = [(float(total), bool(right)) for total, right in pairs]
        for (text, _, _), answer in zip(requests, found, strict=True):
            if text is not None:
                self.cache_hook.add_partial("loglikelihood", text, answer)
        return found

    def loglikelihood_rolling(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[float]:
        """Each text whole, in rows of `max_length` with as much context as fits.

        One token begins it: the harness's own models score a second one where the tokenizer puts it
        there.
        """
        found: list[float] = []
        for request in requests:
            (text,) = request.args
            tokens = self.tok_encode(text, add_special_tokens=False)
            pieces = utils.get_rolling_token_windows(
                tokens, self.prefix_token_id, self.max_length, 1
            )
            rows = [(None, *utils.make_disjoint_window(piece)) for piece in pieces]
            total = sum(score for score, _ in self._loglikelihood_tokens(rows)) if rows else 0.0
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), total)
            found.append(total)
        return found

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Greedy unless the task draws; up to a stop, the end of the text, or enough tokens."""
        found: list[str] = []
        for request in requests:
            context, settings = request.args
            found.append(self._continued(context, dict(settings)))
            self.cache_hook.add_partial("generate_until", request.args, found[-1])
        return found

    def _continued(self, context: str, settings: dict[str, Any]) -> str:
        until = settings.get("until") or []
        stops = [until] if isinstance(until, str) else list(until)
        count = int(settings.get("max_gen_toks") or settings.get("max_tokens") or NEW)
        room = self.max_length - count
        if room < 1:
            raise DepthbenchError(
                f"the task wants {count} new tokens, but the model reads {self.max_length}. Set "
                "max_gen_toks in the task file to fewer"
            )
        temperature = float(settings.get("temperature") or 0.0)
        drawn = bool(settings.get("do_sample")) and temperature > 0
        sampling = Sampling(temperature=temperature if drawn else 0.0)
        tokens = self.tok_encode(context)[-room:] or [self.prefix_token_id]
        new: list[int] = []
        said = ""
        anew = self.subject.decoder(self.edit.program)
        if isinstance(anew, str):
            self.notes[f"text is computed anew for every token: {anew}"] = None
        program, known = self.edit.program, self.reader.known
        for token in stream(self.subject, program, tokens, sampling, known):
            if token == self.eot_token_id:
                break
            new.append(token)
            said = self.reader.coder.decode(new)
            if len(new) == count or any(stop in said for stop in stops if stop):
                break
        return min((said.split(stop)[0] for stop in stops if stop), key=len, default=said)


def register() -> None:
    """Make ``depthbench`` a model of the harness, for this process."""
    if NAME not in model_registry:
        model_registry.register(NAME)(DepthbenchLM)


def measure_harness(
    machinery: Machinery, reader: Reader, config: HarnessConfig
) -> Iterator[Measured]:
    """Every task under every program.

    Raises `DepthbenchError` for a task that is not there.
    """
    manager = TaskManager(include_path=config.include_path)
    for task in config.tasks:
        if task not in manager.all_tasks:
            raise DepthbenchError(
                f"lm-eval = '{task}': no such task{nearest(task, manager.all_tasks) or '.'} Name "
                "the folder of your own task files with --include-path"
            )
    # what decorates it hides its parameters from type checkers
    evaluate: Any = simple_evaluate
    for edit in machinery.edits:
        lm = DepthbenchLM(machinery.subject, reader, edit, machinery.batch)
        found = evaluate(
            model=lm,
            tasks=list(config.tasks),
            num_fewshot=config.shots,
            limit=config.limit,
            task_manager=manager,
            random_seed=machinery.seed,
            bootstrap_iters=1000,
        )
        for name in found["results"]:
            yield _measured(name, found, machinery, lm, config)


def _measured(
    name: str, found: Any, machinery: Machinery, lm: DepthbenchLM, config: HarnessConfig
) -> Measured:
    subject, edit = machinery.subject, lm.edit
    samples = found.get("samples", {}).get(name, [])
    read = [[one["doc_hash"], one["prompt_hash"], one["target_hash"]] for one in samples]
    policy = {
        "lm_eval": importlib.metadata.version("lm_eval"),
        "shots": found.get("n-shot", {}).get(name),
        "limit": config.limit,
        "version": found.get("versions", {}).get(name),
        "length": lm.max_length,
        "prefix_token": lm.prefix_token_id,
        "front_token": lm.front,
        "tokenizer": lm.tokenizer_name,
        # the harness's own models predict every row of the head
        "rows_left_out": 0,
    }
    return Measured(
        kind="lm_eval",
        name=name,
        program=edit.label,
        blocks=edit.blocks,
        policy=policy,
        data_hash=digest_of(read),
        counts={"questions": len(samples)},
        numbers=tuple(_numbers(found["results"][name], len(samples))),
        notes=tuple(lm.notes),
        machine=describe(str(subject.device), subject.dtype),
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _numbers(results: dict[str, Any], questions: int) -> Iterator[Number]:
    """Its metrics, with Wilson's interval of a share, or what the standard error gives."""
    for key, value in results.items():
        metric, comma, way = key.partition(",")
        if not comma or metric.endswith("_stderr") or isinstance(value, str):
            continue
        error = results.get(f"{metric}_stderr,{way}")
        low, high, span = _interval(metric, float(value), error, questions)
        yield Number(
            name=metric if way == "none" else f"{metric}, {way}",
            title=metric.replace("_", " "),
            value=float(value),
            low=low,
            high=high,
            span=span,
        )


def _interval(
    metric: str, value: float, error: object, questions: int
) -> tuple[float | None, float | None, str]:
    """Its ends and what it is; none where the harness gives no error."""
    if not isinstance(error, int | float):
        return None, None, ""
    right = round(value * questions)
    if metric in SHARES and abs(value * questions - right) < 1e-6:
        return *wilson(right, questions), "95 % Wilson interval"
    return value - Z * error, value + Z * error, "95 % by standard error"


def main() -> None:
    """The harness's own command."""
    from lm_eval.__main__ import cli_evaluate

    register()
    try:
        cli_evaluate()
    except DepthbenchError as error:
        print(f"depthbench: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
