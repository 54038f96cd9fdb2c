"""Loss on the answers of published sets: from the Hub by name, or from a copy of one's own."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from depthbench.config import digest_of
from depthbench.data.huggingface import library
from depthbench.errors import DepthbenchError, nearest, unknown
from depthbench.evals.measure import Machinery, measure
from depthbench.evals.pairs import JoinConfig, Pair, answer_losses, rows_of_pairs
from depthbench.evals.published import PUBLISHED, PublishedSet
from depthbench.evals.result import Measured
from depthbench.files import user_path
from depthbench.probes.reader import Reader

FILES = {".jsonl": "json", ".json": "json", ".parquet": "parquet", ".csv": "csv"}
"""By suffix: what reads a copy that is one file."""


class SetsConfig(JoinConfig):
    """Which published sets, and how their pairs become rows."""

    sets: tuple[str, ...] = Field(min_length=1)
    """``NAME``, ``NAME@REVISION`` of the Hub, or ``NAME=FOLDER`` with a copy; see `PUBLISHED`."""
    limit: int | None = Field(default=None, ge=1)
    """Questions of each set, the first ones; None = all."""


class Wanted(NamedTuple):
    """A set, and where it is read from."""

    name: str
    revision: str | None
    """Commit, branch or tag on the Hub; None = the newest."""
    place: str | None
    """Folder or file with a copy; None = the Hub."""

    @classmethod
    def of(cls, text: str) -> "Wanted":
        """Raises `DepthbenchError` for a name that is no set's, and for a revision of a copy."""
        named, given, place = text.partition("=")
        name, _, revision = named.strip().partition("@")
        if name not in PUBLISHED:
            raise unknown("set", name, PUBLISHED)
        if given and (revision or not place.strip()):
            raise DepthbenchError(
                f"set = '{text}': write NAME, NAME@REVISION, or NAME=FOLDER with a copy of the set"
            )
        return cls(name, revision or None, place.strip() or None)


class Records(NamedTuple):
    """What was read of a set."""

    rows: list[dict[str, Any]]
    revision: str | None
    """Commit on the Hub; None for a copy."""
    split: str


def measure_sets(machinery: Machinery, reader: Reader, config: SetsConfig) -> Iterator[Measured]:
    """Every set under every program.

    Raises `DepthbenchError` for a set that cannot be reached or has other columns.
    """
    for wanted in [Wanted.of(text) for text in config.sets]:
        one = PUBLISHED[wanted.name]
        records = read_set(wanted)
        pairs = pairs_of(wanted, records.rows)[: config.limit]
        policy = {
            "sets": [wanted.name],
            "hub": one.hub,
            "subsets": list(one.subsets),
            "split": records.split,
            "revision": records.revision,
            "place": wanted.place,
            "licence": one.licence,
            "prompt": one.prompt,
            "answer": one.answer,
            "text_hash": digest_of([[pair.prompt, pair.answer] for pair in pairs]),
        }
        rows = rows_of_pairs(wanted.name, pairs, config, reader, policy)
        yield from measure(machinery, rows, answer_losses)


def read_set(wanted: Wanted) -> Records:
    """All records of a set that count.

    Raises `DepthbenchError` where it cannot be reached or read.
    """
    one, what = PUBLISHED[wanted.name], f"set = '{wanted.name}'"
    datasets = library(what)
    place = None if wanted.place is None else user_path(wanted.place)
    if place is not None and not place.exists():
        raise DepthbenchError(f"{what}: no file or folder {wanted.place}. Check the name")
    # a copy is read where it lies, and leaves nothing behind
    with tempfile.TemporaryDirectory() as scratch:
        try:
            if place is None:
                asked: list[dict[str, Any]] = [
                    {"path": one.hub, "name": subset, "revision": wanted.revision}
                    for subset in one.subsets or (None,)
                ]
            else:
                asked = [{**each, "cache_dir": scratch} for each in _local(datasets, place, one)]
            builders = [datasets.load_dataset_builder(**each) for each in asked]
            parts = [_prepared(builder, one, strict=place is None) for builder in builders]
        except DepthbenchError:
            raise
        # the library and its readers raise errors of many kinds
        except Exception as error:
            raise _unread(wanted, error) from None
        rows = [row for _, part in parts for row in part if _counts(row, one)]
    if not rows:
        raise DepthbenchError(f"{what}: {wanted.place or one.hub} holds none of its records")
    revision = builders[0].hash if place is None else None
    return Records(rows, revision, parts[0][0])


def pairs_of(wanted: Wanted, rows: Sequence[dict[str, Any]]) -> list[Pair]:
    """Prompt and answer of every record.

    Raises `DepthbenchError` for a record that lacks a column, or whose answer is empty.
    """
    one = PUBLISHED[wanted.name]
    prompt, answer = _writer(one.prompt), _writer(one.answer)
    found: list[Pair] = []
    for number, row in enumerate(rows, start=1):
        where = f"set '{wanted.name}' record {number}"
        if missing := [name for name in one.columns if row.get(name) is None]:
            raise DepthbenchError(
                f"{where} has no '{missing[0]}'{nearest(missing[0], row) or '.'} It has "
                f"{', '.join(row)}; the set's columns are {', '.join(one.columns)}"
            )
        try:
            pair = Pair(where, prompt(row), answer(row))
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            raise DepthbenchError(
                f"{where} cannot be written as prompt and answer ({error}): its columns "
                f"{', '.join(one.columns)} are not those of {one.hub}"
            ) from None
        if not pair.answer.strip():
            raise DepthbenchError(f"{where}: the answer is empty. Remove that record from a copy")
        found.append(pair)
    return found


def _writer(template: str) -> Callable[[dict[str, Any]], str]:
    """What a record becomes; raises `ValueError` for what the template does not find in it."""
    # few commands need it
    from jinja2 import Environment, StrictUndefined, TemplateError

    # what stands in a record is put in as it is, never rendered itself
    made = Environment(undefined=StrictUndefined, keep_trailing_newline=True).from_string(template)

    def write(record: dict[str, Any]) -> str:
        try:
            return made.render(record)
        except TemplateError as error:
            raise ValueError(str(error)) from None

    return write


def _local(datasets: Any, place: Path, one: PublishedSet) -> list[dict[str, Any]]:
    """How each subset of a copy is read: all in one, or by the names that they have on the Hub."""
    if place.is_file():
        kind = FILES.get(place.suffix)
        if kind is None:
            raise DepthbenchError(
                f"{place} is no copy of a set. Name a folder, or a file that ends in "
                f"{', '.join(FILES)}"
            )
        return [{"path": kind, "data_files": str(place)}]
    names = datasets.get_dataset_config_names(str(place))
    if len(names) == 1 and names[0] not in one.subsets:
        return [{"path": str(place), "name": names[0]}]
    missing = [name for name in one.subsets if name not in names]
    if missing or not one.subsets:
        raise DepthbenchError(
            f"{place} has the subsets {', '.join(names[:20])}, but the set is read from "
            f"{', '.join(missing) or 'one alone'}. Name a folder with these records alone"
        )
    return [{"path": str(place), "name": name} for name in one.subsets]


def _prepared(builder: Any, one: PublishedSet, strict: bool) -> tuple[str, list[dict[str, Any]]]:
    """Its split and the records of it; a copy may hold a single split under another name."""
    builder.download_and_prepare()
    splits = list(builder.info.splits)
    split = one.split if one.split in splits or strict or len(splits) > 1 else splits[0]
    if split not in splits:
        raise DepthbenchError(
            f"split '{split}' of {one.hub} is not there. It has {', '.join(map(str, splits))}"
        )
    return split, list(builder.as_dataset(split=split))


def _counts(row: dict[str, Any], one: PublishedSet) -> bool:
    return all(row.get(column) in (None, *values) for column, values in one.only.items())


def _unread(wanted: Wanted, error: Exception) -> DepthbenchError:
    one = PUBLISHED[wanted.name]
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    copy = (
        f"Name a copy of it (a folder or .jsonl with the columns {', '.join(one.columns)}) with "
        f"--set {wanted.name}=FOLDER, or pairs of your own with --pairs FILE.jsonl"
    )
    if wanted.place is not None:
        return DepthbenchError(
            f"set = '{wanted.name}': {wanted.place} cannot be read through datasets: {reason}. "
            f"{copy}"
        )
    if isinstance(error, ConnectionError):
        return DepthbenchError(
            f"set = '{wanted.name}': the Hugging Face Hub could not be reached for {one.hub} "
            f"({reason}). {copy}"
        )
    return DepthbenchError(
        f"set = '{wanted.name}': {one.hub} cannot be read through datasets: {reason}. {copy}"
    )
