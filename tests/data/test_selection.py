import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from depthbench.data.selection import Selection, cut_at, select
from depthbench.data.sources import Document, Source
from depthbench.errors import DepthbenchError


def source(name: str, documents: Iterable[Document]) -> Source:
    listed = list(documents)
    return Source(name, lambda: listed)


def many(count: int, files: int = 1) -> list[Source]:
    """Documents of 100 bytes with different content."""
    return [
        source(
            f"f{f}", (Document(f"f{f}:{n}", f"{f}:{n}".ljust(100).encode()) for n in range(count))
        )
        for f in range(files)
    ]


def names(selection: Selection) -> list[str]:
    return [one.name for one in selection.train + selection.validation]


def test_split_is_the_hash_of_the_name() -> None:
    selection = select("d", many(2000), 0.1, None, set())
    expected = {
        f"f0:{n}"
        for n in range(2000)
        if int(hashlib.sha256(f"split:f0:{n}".encode()).hexdigest()[:16], 16) < 0.1 * 2**64
    }
    assert {one.name for one in selection.validation} == expected
    assert 160 < len(expected) < 240
    assert len(selection.train) == 2000 - len(expected)
    assert selection.split == "document"


def test_exact_duplicates_are_dropped_within_and_across_domains() -> None:
    seen: set[bytes] = set()
    twice = [Document(f"n{n}", f"text {n % 30}".encode()) for n in range(60)]
    first = select("a", [source("f", twice)], 0.2, None, seen)
    assert (first.documents, first.duplicates) == (30, 30)
    contents = [one.data for one in first.train + first.validation]
    assert len(contents) == len(set(contents)) == 30
    other = [Document("x", b"text 3"), *(Document(f"y{n}", f"new {n}".encode()) for n in range(30))]
    second = select("b", [source("g", other)], 0.2, None, seen)
    assert (second.documents, second.duplicates) == (30, 1)


def test_cap_takes_documents_in_hash_order_and_keeps_both_sides() -> None:
    capped = select("d", many(300, files=5), 0.1, 0.05, set())
    assert capped.documents == 500
    assert sum(len(one.data) for one in capped.train + capped.validation) == 50_000
    assert 25 < len(capped.validation) < 85
    smaller = select("d", many(300, files=5), 0.1, 0.02, set())
    assert set(names(smaller)) < set(names(capped))
    assert len({name.split(":")[0] for name in names(smaller)}) == 1
    order = {
        name: hashlib.sha256(f"order:{name}".encode()).digest()
        for name in (f"{names(smaller)[0].split(':')[0]}:{n}" for n in range(300))
    }
    assert set(names(smaller)) == set(sorted(order, key=lambda name: order[name])[:200])


def test_what_the_cap_left_out_is_no_duplicate_elsewhere() -> None:
    seen: set[bytes] = set()
    capped = select("a", many(100), 0.1, 0.004, seen)
    rest = select("b", [source("g", many(100)[0].read())], 0.1, None, seen)
    assert (capped.documents, rest.documents, rest.duplicates) == (40, 60, 40)


def test_cap_cuts_the_last_document_between_characters() -> None:
    selection = select(
        "d", [source("f", [Document("é", "é".encode() * 1000)])], 0.1, 0.000_101, set()
    )
    data = selection.train[0].data + selection.validation[0].data
    assert data == "é".encode() * 50
    assert "cut to fit megabytes" in selection.notes[0]


def test_a_single_file_is_split_by_position_at_a_line() -> None:
    text = b"".join(b"line %03d\n" % n for n in range(100))
    selection = select("d", [source("f", [Document("f", text)])], 0.1, None, set())
    (train,), (validation,) = selection.train, selection.validation
    assert train.data + validation.data == text
    assert validation.data.startswith(b"line 090\n")
    assert selection.split == "position"
    assert "split by position" in selection.notes[0]


def test_split_by_position_without_lines_keeps_characters_whole() -> None:
    text = "∑" * 1000
    selection = select("d", [source("f", [Document("f", text.encode())])], 0.1, None, set())
    assert selection.train[0].data.decode() + selection.validation[0].data.decode() == text
    assert len(selection.validation[0].data) == 300


def test_too_short_for_two_sides() -> None:
    with pytest.raises(DepthbenchError, match="domain 'd' has 1 bytes of text: too short"):
        select("d", [source("f", [Document("f", b"x")])], 0.1, None, set())


def test_cut_at_keeps_bytes_that_are_no_utf8() -> None:
    assert cut_at("aé".encode(), 2) == 1
    assert cut_at(b"abc", 3) == 3
    assert cut_at(b"\x80" * 20, 10) == 10


def test_the_folder_of_the_tests(folder: Path, text: Callable[[int, int], str]) -> None:
    sources = [
        source(file.name, [Document(file.name, file.read_bytes())])
        for file in sorted(folder.iterdir())
    ]
    selection = select("words", sources, 0.2, None, set())
    assert (selection.documents, selection.duplicates) == (40, 5)
    assert (selection.split, len(selection.train) + len(selection.validation)) == ("document", 40)
    left = {one.data for one in selection.train}
    assert left.isdisjoint(one.data for one in selection.validation)
    assert text(0, 60).encode() in left | {one.data for one in selection.validation}
