import json
import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from depthbench.data.own import expand
from depthbench.data.selection import select
from depthbench.data.sources import Document
from depthbench.errors import DepthbenchError


def documents(path: Path | str, field: str = "text") -> list[Document]:
    (domain,) = expand((str(path),), field)
    selection = select(domain.name, domain.sources, 0.5, None, set())
    return selection.train + selection.validation


def read(path: Path | str, field: str = "text") -> dict[str, bytes]:
    (domain,) = expand((str(path),), field)
    return {one.name: one.data for source in domain.sources for one in source.read()}


def refused(path: Path | str, field: str = "text") -> str:
    with pytest.raises(DepthbenchError) as caught:
        documents(path, field)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_text_file_is_read_as_bytes(tmp_path: Path) -> None:
    content = b"caf\xe9 \xff\xfe \r\n tail"
    (tmp_path / "a.weird").write_bytes(content)
    assert read(tmp_path / "a.weird") == {"a.weird": content}


def test_jsonl(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    lines = [json.dumps({"body": text}) for text in ("one", "  ", "drei ∑")]
    file.write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    assert read(file, "body") == {"a.jsonl:1": b"one", "a.jsonl:5": "drei ∑".encode()}


def test_parquet(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": [1, 2, 3], "text": ["x y", None, "é"]}), file)
    assert read(file) == {"a.parquet:1": b"x y", "a.parquet:3": "é".encode()}


def test_folder_leaves_out_what_is_no_text_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "a.txt").write_text("first")
    (tmp_path / "b.md").write_text("second")
    (tmp_path / ".hidden").write_text("third")
    (tmp_path / "empty.txt").touch()
    (tmp_path / "image.png").write_bytes(b"text")
    (tmp_path / "nul").write_bytes(b"a\0b")
    (domain,) = expand((str(tmp_path),), "text")
    selection = select(domain.name, domain.sources, 0.5, None, set())
    kept = {one.name.split("[")[0] for one in selection.train + selection.validation}
    assert kept == {"deep/er/a.txt", "b.md"}
    assert selection.notes[0].startswith("3 files are left out, the first: ")


def test_names_of_domains(tmp_path: Path) -> None:
    for name in ("a/data.txt", "b/data.txt", "c/data.jsonl"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text('{"text": "x"}')
    given = ("a/data.txt", "b/data.txt", "c", "*/*.txt", "c/*.jsonl")
    found = expand(tuple(str(tmp_path / name) for name in given), "text")
    assert [one.name for one in found] == ["data", "data-2", "c", tmp_path.name, "c-2"]
    assert [len(one.sources) for one in found] == [1, 1, 1, 2, 1]


def test_a_glob_reaches_into_folders(tmp_path: Path) -> None:
    (tmp_path / "x" / "y").mkdir(parents=True)
    (tmp_path / "x" / "y" / "a.txt").write_text("one")
    (tmp_path / "x" / "b.txt").write_text("two")
    assert read(tmp_path / "**" / "*.txt") == {"x/y/a.txt": b"one", "x/b.txt": b"two"}


def test_missing_file_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("x")
    message = refused(tmp_path / "corpsu.txt")
    assert message.startswith(f"paths: no file or folder {tmp_path}/corpsu.txt")
    assert "did you mean 'corpus.txt'?" in message


def test_missing_folder(tmp_path: Path) -> None:
    assert "no file or folder" in refused(tmp_path / "no" / "where.txt")


def test_a_name_that_no_system_allows(tmp_path: Path) -> None:
    assert "cannot be read: File name too long" in refused(tmp_path / ("a" * 300))


def test_glob_without_match(tmp_path: Path) -> None:
    assert f"no file matches {tmp_path}/*.md" in refused(tmp_path / "*.md")
    # from Python 3.13 on `**md` is `*md`
    told = "no file matches" if sys.version_info >= (3, 13) else "no valid glob"
    assert told in refused(tmp_path / "**md")


@pytest.mark.parametrize("content", [b"", b" \n\n"])
def test_empty_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    assert refused(tmp_path / "a.txt") == f"{tmp_path}/a.txt is empty. Name a file with text"


def test_folder_without_text(tmp_path: Path) -> None:
    assert "holds no file" in refused(tmp_path)
    (tmp_path / "a").write_bytes(b"\0")
    assert "holds no readable text (1 files are left out" in refused(tmp_path)


def test_binary_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"abc\0def")
    assert "a.txt is binary (NUL at byte 3)" in refused(tmp_path / "a.txt")


def test_container_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(b"abc")
    message = refused(tmp_path / "a.txt.gz")
    assert "'.gz' is no text format. Allowed: text files, .jsonl, .parquet" in message


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([b'{"text": "a"}', b'{"text": '], "a.jsonl line 2 is no valid JSON (Expecting value)"),
        ([b'{"text": "\xff"}'], "a.jsonl line 1 is no valid JSON (not UTF-8)"),
        ([b"", b"[1]"], "a.jsonl line 2 is no JSON object"),
        ([b'{"text": 3}'], "a.jsonl line 1: field 'text' is int, not text"),
        (
            [b'{"txt": "a", "id": 1}'],
            "line 1 has no field 'text', did you mean 'txt'? It has: id, txt",
        ),
        ([b'{"text": " "}'], "domain 'a' holds no readable text"),
    ],
)
def test_broken_jsonl(tmp_path: Path, lines: list[bytes], message: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    assert message in refused(tmp_path / "a.jsonl")


def test_broken_jsonl_in_a_folder_is_not_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{")
    (tmp_path / "b.txt").write_text("fine")
    assert "a.jsonl line 1 is no valid JSON" in refused(tmp_path)


def test_bad_parquet(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": [1], "body": ["x"]}), file)
    assert "a.parquet has no field 'text'. It has: body, n" in refused(file)
    assert "column 'n' is int64, not text" in refused(file, "n")
    file.write_bytes(b"no parquet")
    assert "a.parquet is no readable Parquet file" in refused(file)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_file_without_permission(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "a.txt").chmod(0)
    assert "a.txt cannot be read: Permission denied" in refused(tmp_path / "a.txt")
    (tmp_path / "deep").mkdir(mode=0)
    assert "cannot be read: Permission denied" in refused(tmp_path / "deep" / "b.txt")
