"""Text of the user's own: files, folders, globs; plain text, JSONL, Parquet."""

import glob
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from depthbench.data.sources import Document, Source, UnreadableFile
from depthbench.errors import DepthbenchError, nearest
from depthbench.files import user_path

CONTAINERS = {
    *(".gz", ".bz2", ".xz", ".zst", ".zip", ".tar", ".tgz", ".7z", ".pdf", ".docx", ".epub"),
    *(".npy", ".npz", ".pt", ".pth", ".bin", ".safetensors", ".gguf", ".arrow", ".pkl", ".db"),
    *(".png", ".jpg", ".jpeg", ".gif", ".webp", ".mp3", ".mp4", ".so", ".exe", ".pyc", ".whl"),
}
ALLOWED = "Allowed: text files, .jsonl, .parquet"


@dataclass(frozen=True)
class OwnDomain:
    """The files of one entry of ``paths``."""

    name: str
    given: str
    sources: list[Source]
    fingerprint: list[tuple[str, int, int]]
    """Path, size and modification time (ns) of every file."""


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
        sources = [_source(path, base, text_field, lenient=not named) for path in files]
        prints = [_fingerprint(path) for path in files]
        found.append(OwnDomain(unique, given, sources, prints))
    return found


def _files(given: str) -> tuple[Path, list[Path], str]:
    """Root, files in a fixed order, and name of one entry of ``paths``."""
    if not given.strip():
        raise DepthbenchError(
            "paths: '' names nothing. Name a file, folder or glob; the current folder is ."
        )
    path = user_path(given)
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


def _source(path: Path, base: Path, text_field: str, lenient: bool) -> Source:
    name = path.relative_to(base).as_posix()
    suffix = path.suffix.lower()
    read: Callable[[], Iterator[Document]]
    if suffix in {".jsonl", ".ndjson"}:
        read = partial(_jsonl, path, name, text_field)
    elif suffix == ".parquet":
        read = partial(_parquet, path, name, text_field)
    else:
        read = partial(_text, path, name)
    return Source(name, read, lenient)


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
        try:
            record = json.loads(line)
        except ValueError as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else "not UTF-8"
            raise DepthbenchError(
                f"{path} line {number} is no valid JSON ({reason}). Mend or remove that line"
            ) from None
        text = _field_of(record, field, path, number)
        if text.strip():
            # lone surrogates are legal in JSON; the byte tokenizer keeps them, a BPE refuses them
            yield Document(f"{name}:{number}", text.encode("utf-8", "surrogatepass"))


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
            "Set text_field to a text field"
        )
    return text


def _no_field(place: str, field: str, names: list[str]) -> DepthbenchError:
    listed = ", ".join(names[:20]) or "none"
    return DepthbenchError(
        f"{place} has no field '{field}'{nearest(field, names) or '.'} It has: {listed}. "
        "Set text_field to one of them"
    )


def _parquet(path: Path, name: str, field: str) -> Iterator[Document]:
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
                    f"{path}: column '{field}' is {kind}, not text. Set text_field to a text column"
                )
            number = 0
            for batch in file.iter_batches(columns=[field]):
                for text in batch.column(0).to_pylist():
                    number += 1
                    if text is not None and text.strip():
                        yield Document(f"{name}:{number}", text.encode())
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UnreadableFile(f"{path} is no readable Parquet file: {reason}") from None
