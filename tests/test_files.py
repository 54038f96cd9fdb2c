"""Atomic writes and append-only lines under failure."""

import os
from pathlib import Path

import pytest

from depthbench.errors import DepthbenchError
from depthbench.files import (
    append_line,
    make_folder,
    read_lines,
    save_atomic,
    try_to_reach,
    write_atomic,
)


def test_write_replaces_content_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "x.json"
    write_atomic(path, "one")
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert [p.name for p in path.parent.iterdir()] == ["x.json"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_writer_that_fails_half_way_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_atomic(path, "old")

    def half(temporary: str) -> None:
        Path(temporary).write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(DepthbenchError, match=r"cannot write .*x: No space left on device\. Free"):
        save_atomic(path, half)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_rename_or_fsync_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    write_atomic(path, "old")

    def broken(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        with pytest.raises(DepthbenchError, match="Input/output error"):
            write_atomic(path, "new")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", broken)
        with pytest.raises(DepthbenchError, match="Input/output error"):
            write_atomic(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_an_error_of_the_writer_itself_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_atomic(path, "old")

    def wrong(temporary: str) -> None:
        Path(temporary).write_text("half")
        raise KeyError("bug")

    with pytest.raises(KeyError):
        save_atomic(path, wrong)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DepthbenchError) as caught:
        write_atomic(tmp_path / "file" / "x", "new")
    assert str(caught.value) == (
        f"cannot create the folder {tmp_path / 'file'}: File exists. "
        "Name another folder, which can be written"
    )
    with pytest.raises(DepthbenchError, match="Not a directory"):
        make_folder(tmp_path / "file" / "deeper")
    with pytest.raises(DepthbenchError, match=r"cannot write .*: Is a directory"):
        append_line(tmp_path, {"a": 1})


def test_lines_come_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "new" / "x.jsonl"
    assert read_lines(path) == []
    append_line(path, {"b": 2, "a": None})
    append_line(path, {"c": "ä\n"})
    assert path.read_bytes() == b'{"a": null, "b": 2}\n{"c": "\\u00e4\\n"}\n'
    assert read_lines(path) == [{"a": None, "b": 2}, {"c": "ä\n"}]


@pytest.mark.parametrize("torn", [b'{"b": ', b'{"b": 2}', b"\xc3"])
def test_a_torn_last_line_is_left_out_and_cut_off(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"a": 1}\n' + torn)
    assert read_lines(path) == [{"a": 1}]
    append_line(path, {"c": 3})
    assert path.read_bytes() == b'{"a": 1}\n{"c": 3}\n'


def test_a_file_that_is_one_torn_line_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"a"')
    append_line(path, {"c": 3})
    assert read_lines(path) == [{"c": 3}]


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (b'{"b": ', "Expecting value"),
        (b"5", "no object"),
        (b'"\xff"', "no UTF-8 text"),
    ],
)
def test_a_broken_line_that_has_its_end_is_an_error(
    tmp_path: Path, broken: bytes, reason: str
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"a": 1}\n' + broken + b'\n{"c": 3}\n')
    with pytest.raises(DepthbenchError) as caught:
        read_lines(path)
    assert str(caught.value) == (
        f"{path} line 2 is no valid JSON ({reason}). Remove that line, or run the study again"
    )


def test_no_number_that_is_no_json_gets_into_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    with pytest.raises(ValueError, match="not JSON compliant"):
        append_line(path, {"a": float("nan")})
    assert not path.exists()


def test_what_the_system_refuses_is_told_from_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_text("x")
    for nothing in ("gone", "gone/deeper", "file/deeper", "loop", "a\0b", "file"):
        try_to_reach(tmp_path / nothing)
    with pytest.raises(OSError, match="File name too long"):
        try_to_reach(tmp_path / ("x" * 300))
