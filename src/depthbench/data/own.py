"""Text of the user's own: files, folders, globs; plain text, JSONL, Parquet."""

import glob
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from depthbench.data.sources import Document, Source, UnreadableFile
from depthbench.errors import DepthbenchError, nearest
from depthbench.files import try_to_reach, user_path

CONTAINERS = {
    *(".gz", ".bz2", ".xz", ".zst", ".zip", ".tar", ".tgz", ".7z", ".pdf", ".docx", ".epub"),
    *(".npy", ".npz", ".pt", ".pth", ".bin", ".safetensors", ".gguf", ".arrow", ".pkl", ".db"),
    *(".png", ".jpg", ".jpeg", ".gif", ".webp", ".mp3", ".mp4", ".so", ".exe", ".pyc", ".whl"),
}
JSON_LINES = {".jsonl", ".ndjson"}
ALLOWED = "Allowed: text files, .jsonl, .parquet"


@dataclass(frozen=True)
class OwnFile:
    """A file of the user's own and how to read it."""

    path: Path
    name: str
    text_field: str
    lenient: bool

    @property
    def suffix(self) -> str:
        """In lower case."""
        return self.path.suffix.lower()

    def source(self) -> Source:
        """The whole file."""
        read: Callable[[], Iterator[Document]]
        if self.suffix in JSON_LINES:
            read = partial(_jsonl, self.path, self.name, self.text_field)
        elif self.suffix == ".parquet":
            read = partial(_parquet, self.path, self.name, self.text_field)
        else:
            read = partial(_text, self.path, self.name)
        return Source(self.name, read, self.lenient)

    def pieces(self, size: int) -> Iterator[tuple[Source, int]]:
        """The same documents in parts of about ``size`` bytes of the file, and their bytes.

        Lines of JSONL and row groups of Parquet stay whole, and so does plain text. Raises
        `UnreadableFile` for a Parquet file that is none.
        """
        total = self.path.stat().st_size
        if self.suffix in JSON_LINES and total > size:
            for start in range(0, total, size):
                end = min(start + size, total)
                read = partial(_jsonl_part, self.path, self.name, self.text_field, start, end)
                yield Source(f"{self.name}[{start}:{end}]", read, self.lenient), end - start
        elif self.suffix == ".parquet" and total > size:
            for first, last, row, held in _row_groups(self.path, self.text_field, size):
                groups = range(first, last)
                read = partial(_parquet, self.path, self.name, self.text_field, groups, row)
                yield Source(f"{self.name}[groups {first}:{last}]", read, self.lenient), held
        else:
            yield self.source(), total


@dataclass(frozen=True)
class OwnDomain:
    """The files of one entry of ``paths``."""

    name: str
    given: str
    files: list[OwnFile]
    fingerprint: list[tuple[str, int, int]]
    """Path, size and modification time (ns) of every file."""

    @property
    def sources(self) -> list[Source]:
        """Every file as a whole."""
        return [file.source() for file in self.files]


def expand(paths: tuple[str, ...], text_field: str) -> list[OwnDomain]:
    """One domain for each file, folder or glob, named by its stem (``-2`` … if taken).

    Raises `DepthbenchError` for a missing path, a glob without a match and an empty folder.
    """
    found: list[OwnDomain] = []
    for given in paths:
        try:
            root, files, name = _files(given)
        except OSError as error:
            raise DepthbenchError(
                f"paths: {given} cannot be read: {error.strerror or error}. Check its permissions"
            ) from None
        named = files == [root]
        taken = {domain.name for domain in found}
        count = 2
        unique = name
        while unique in taken:
            unique = f"{name}-{count}"
            count += 1
        base = root.parent if named else root
        own = [
            OwnFile(path, path.relative_to(base).as_posix(), text_field, lenient=not named)
            for path in files
        ]
        prints = [_fingerprint(path) for path in files]
        found.append(OwnDomain(unique, given, own, prints))
    return found


def _files(given: str) -> tuple[Path, list[Path], str]:
    """Root, files in a fixed order, and name of one entry of ``paths``."""
    if not given.strip():
        raise DepthbenchError(
            "paths: '' names nothing. Name a file, folder or glob; the current folder is ."
        )
    path = user_path(given)
    try_to_reach(path)
    if path.is_file():
        return path, [path], path.stem
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if _visible(file, path))
        if not files:
            raise DepthbenchError(
                f"paths: folder {given} holds no file that can be read. {ALLOWED}"
            )
        return path, files, path.resolve().name or "text"
    if path.exists():
        raise DepthbenchError(f"paths: {given} is no regular file and no folder. {ALLOWED}")
    if not glob.has_magic(given):
        siblings = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
        raise DepthbenchError(
            f"paths: no file or folder {given}{nearest(path.name, siblings) or '.'} "
            "Name a text, .jsonl or .parquet file, a folder or a glob"
        )
    root = _fixed_part(path)
    try:
        files = sorted(file for file in root.glob(str(path.relative_to(root))) if file.is_file())
    except ValueError as error:
        raise DepthbenchError(f"paths: {given} is no valid glob: {error}") from None
    if not files:
        raise DepthbenchError(
            f"paths: no file matches {given}. Quote the pattern, and check it with ls; "
            "** reaches into folders"
        )
    return root, files, root.resolve().name or "text"


def _fixed_part(pattern: Path) -> Path:
    """The folder before the first part of ``pattern`` that has a wildcard."""
    fixed = Path(pattern.anchor)
    for part in pattern.relative_to(pattern.anchor).parts:
        if glob.has_magic(part):
            break
        fixed /= part
    return fixed


def _visible(file: Path, root: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(root).parts)
    return not hidden and file.is_file()


def _fingerprint(path: Path) -> tuple[str, int, int]:
    try:
        facts = path.stat()
    except OSError as error:
        raise DepthbenchError(f"{path} cannot be read: {error.strerror or error}") from None
    return str(path.resolve()), facts.st_size, facts.st_mtime_ns


def _bytes_of(path: Path) -> bytes:
    if path.suffix.lower() in CONTAINERS:
        raise UnreadableFile(f"{path}: '{path.suffix}' is no text format. {ALLOWED}; unpack it")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UnreadableFile(
            f"{path} cannot be read: {error.strerror or error}. Check its permissions"
        ) from None
    if not data.strip():
        raise UnreadableFile(f"{path} is empty. Name a file with text")
    position = data.find(b"\0")
    if position >= 0:
        raise UnreadableFile(
            f"{path} is binary (NUL at byte {position}). {ALLOWED}; save text as UTF-8"
        )
    return data


def _text(path: Path, name: str) -> Iterator[Document]:
    yield Document(name, _bytes_of(path))


def _jsonl(path: Path, name: str, field: str) -> Iterator[Document]:
    for number, line in enumerate(_bytes_of(path).split(b"\n"), start=1):
        if not line.strip():
            continue
        text = _field_of(_parsed(line, path, number), field, path, number)
        if text.strip():
            # lone surrogates are legal in JSON; the byte tokenizer keeps them, a BPE refuses them
            yield Document(f"{name}:{number}", text.encode("utf-8", "surrogatepass"))


def _jsonl_part(path: Path, name: str, field: str, start: int, end: int) -> Iterator[Document]:
    """Documents of the lines that begin in bytes ``start`` to ``end``, named by that byte."""
    try:
        with path.open("rb") as file:
            # the line that holds the byte before `start` began earlier, or ends there
            file.seek(max(0, start - 1))
            position = start - 1 + len(file.readline()) if start else 0
            while position < end:
                line = file.readline()
                if line.strip():
                    try:
                        text = _field_of(_parsed(line, path, 0), field, path, 0)
                    except DepthbenchError:
                        number = _line_number(path, position)
                        text = _field_of(_parsed(line, path, number), field, path, number)
                    if text.strip():
                        yield Document(f"{name}@{position}", text.encode("utf-8", "surrogatepass"))
                position += len(line)
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror or error}") from None


def _line_number(path: Path, position: int) -> int:
    """Of the line that begins at ``position``."""
    number = 1
    with path.open("rb") as file:
        while position > 0:
            block = file.read(min(position, 2**20))
            number += block.count(b"\n")
            position -= len(block)
    return number


def _parsed(line: bytes, path: Path, number: int) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "not UTF-8"
        raise DepthbenchError(
            f"{path} line {number} is no valid JSON ({reason}). Mend or remove that line"
        ) from None


def _field_of(record: Any, field: str, path: Path, number: int) -> str:
    if not isinstance(record, dict):
        raise DepthbenchError(
            f'{path} line {number} is no JSON object. Each line must be like {{"{field}": "…"}}'
        )
    if field not in record:
        raise _no_field(f"{path} line {number}", field, sorted(record))
    text = record[field]
    if not isinstance(text, str):
        raise DepthbenchError(
            f"{path} line {number}: field '{field}' is {type(text).__name__}, not text. "
            "Set --text-field (text_field) to a text field"
        )
    return text


def _no_field(place: str, field: str, names: list[str]) -> DepthbenchError:
    listed = ", ".join(names[:20]) or "none"
    return DepthbenchError(
        f"{place} has no field '{field}'{nearest(field, names) or '.'} It has: {listed}. "
        "Set --text-field (text_field) to one of them"
    )


@contextmanager
def _open_parquet(path: Path, field: str) -> Iterator[Any]:
    # pyarrow takes a third of a second to import and few use it
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            if field not in schema.names:
                raise _no_field(str(path), field, sorted(schema.names))
            kind = schema.field(field).type
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                raise DepthbenchError(
                    f"{path}: column '{field}' is {kind}, not text. Set --text-field "
                    "(text_field) to a text column"
                )
            yield file
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UnreadableFile(f"{path} is no readable Parquet file: {reason}") from None


def _parquet(
    path: Path, name: str, field: str, groups: range | None = None, number: int = 0
) -> Iterator[Document]:
    """Documents of all row groups, or of some that begin behind ``number`` rows."""
    with _open_parquet(path, field) as file:
        chosen = None if groups is None else list(groups)
        for batch in file.iter_batches(columns=[field], row_groups=chosen, use_threads=False):
            for text in batch.column(0).to_pylist():
                number += 1
                if text is not None and text.strip():
                    yield Document(f"{name}:{number}", text.encode())


def _bytes_in(group: Any, field: str) -> int:
    columns = (group.column(number) for number in range(group.num_columns))
    return sum(one.total_compressed_size for one in columns if one.path_in_schema == field)


def _row_groups(path: Path, field: str, size: int) -> Iterator[tuple[int, int, int, int]]:
    """Runs of row groups of about ``size`` bytes: first, behind the last, rows before, bytes."""
    with _open_parquet(path, field) as file:
        facts = [file.metadata.row_group(n) for n in range(file.metadata.num_row_groups)]
        held = [_bytes_in(group, field) for group in facts]
        rows = [0, *accumulate(group.num_rows for group in facts)]
    first = 0
    for last in range(1, len(held) + 1):
        run = sum(held[first:last])
        if run >= size or last == len(held):
            yield first, last, rows[first], run
            first = last
