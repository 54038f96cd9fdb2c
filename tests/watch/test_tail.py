"""A file of lines that grows, breaks off, and is replaced."""

from pathlib import Path

from depthbench.files import write_atomic
from depthbench.watch.tail import Tail


def test_only_what_is_new_and_whole_is_read(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    tail = Tail(path)
    assert tail.read() == ([], False)
    path.write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert tail.read() == ([{"step": 1}, {"step": 2}], False)
    assert tail.read() == ([], False)
    with path.open("a") as file:
        file.write('ep": 3}\n\n{"step": 4}')
    assert tail.read() == ([{"step": 3}], False)
    with path.open("a") as file:
        file.write("\n")
    assert tail.read() == ([{"step": 4}], False)
    assert tail.unread == 0


def test_lines_that_are_no_records_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"step": 1}\nnonsense\n[1]\n\xff\xfe\n{"step": 2}\n')
    tail = Tail(path)
    assert tail.read() == ([{"step": 1}, {"step": 2}], False)
    assert tail.unread == 3


def test_a_file_in_its_place_starts_over(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n')
    tail = Tail(path)
    assert len(tail.read()[0]) == 3
    # as a run does that goes on from step 1
    write_atomic(path, '{"step": 1}\n')
    assert tail.read() == ([{"step": 1}], True)
    with path.open("a") as file:
        file.write('{"step": 2, "again": true}\n')
    assert tail.read() == ([{"step": 2, "again": True}], False)


def test_a_file_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n')
    tail = Tail(path)
    tail.read()
    path.unlink()
    assert tail.read() == ([], False)
    path.write_text('{"step": 1}\n')
    assert tail.read() == ([{"step": 1}], True)
