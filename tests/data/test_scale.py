"""Prepared folders: every document once, whoever tokenised it, and whatever was killed."""

import hashlib
import json
import math
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from depthbench.data.config import PrepareConfig
from depthbench.data.dataset import Dataset
from depthbench.data.journal import Journal, locked
from depthbench.data.manifest import Manifest, Shard, Side
from depthbench.data.scale import prepare_folder
from depthbench.data.sources import Document
from depthbench.data.tokenizer import train_bpe
from depthbench.errors import DepthbenchError
from tests.data.conftest import make_text

UNIT = 6000


def texts(count: int, start: int = 0) -> list[str]:
    return [make_text(seed, 12) for seed in range(start, start + count)]


def write_jsonl(path: Path, documents: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"id": n, "text": text}) for n, text in enumerate(documents)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_parquet(path: Path, documents: list[str], rows: int = 20) -> Path:
    table = pa.table({"id": list(range(len(documents))), "text": documents})
    pq.write_table(table, path, row_group_size=rows, compression="none")
    return path


def make(out: Path, *paths: Path | str, workers: int = 1, **settings: Any) -> Manifest:
    config = PrepareConfig.parse({"paths": [str(path) for path in paths]} | settings)
    return prepare_folder(config, out, workers=workers, unit_bytes=UNIT)


def files(folder: Path) -> dict[str, str]:
    """Every file of a dataset by its hash; nothing else may be there."""
    assert all(path.is_file() for path in folder.iterdir())
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}


def numbers(folder: Path, shards: tuple[Shard, ...]) -> list[int]:
    return [n for shard in shards for n in np.fromfile(folder / shard.file, shard.dtype).tolist()]


def documents(folder: Path, domain: int, side: Side) -> list[list[int]]:
    """Token ids of each document, by the lengths beside them."""
    facts = Manifest.load(folder).domains[domain]
    shards, lengths = (
        (facts.train, facts.train_lengths)
        if side == "train"
        else (facts.validation, facts.validation_lengths)
    )
    found: list[list[int]] = []
    for shard, beside in zip(shards, lengths, strict=True):
        stream = numbers(folder, (shard,))
        for length in numbers(folder, (beside,)):
            found.append(stream[:length])
            stream = stream[length:]
        assert not stream
    return found


def read_back(folder: Path, domain: int = 0) -> tuple[list[str], list[str]]:
    """Text of both sides of a domain of bytes."""
    sides = [documents(folder, domain, side) for side in ("train", "validation")]
    assert all(ids[0] == 256 and 256 not in ids[1:] for side in sides for ids in side)
    train, validation = ([bytes(ids[1:]).decode() for ids in side] for side in sides)
    return train, validation


def test_every_document_once_in_input_order(tmp_path: Path) -> None:
    given = texts(150)
    source = write_jsonl(tmp_path / "a.jsonl", [*given[:100], *given[20:60], "  ", *given[100:]])
    facts = make(tmp_path / "out", source, shard_tokens=2000).domains[0]
    train, validation = read_back(tmp_path / "out")
    assert sorted(train + validation) == sorted(given)
    assert train == [text for text in given if text in set(train)]
    assert validation == [text for text in given if text in set(validation)]
    assert (facts.documents, facts.duplicates, facts.split) == (150, 40, "document")
    assert (facts.train_documents, facts.validation_documents) == (len(train), len(validation))
    assert facts.train_bytes == sum(len(text.encode()) for text in train)
    assert facts.train_tokens == facts.train_bytes + len(train)
    assert len(facts.train) == len(facts.train_lengths) > 3
    sizes = [shard.size // 2 for shard in facts.train]
    assert max(sizes) < 2000 + max(len(text.encode()) for text in given) + 1
    counts = Counter(numbers(tmp_path / "out", facts.train))
    total = counts.total()
    nats = -sum(n / total * math.log(n / total) for n in counts.values())
    assert facts.unigram_nats_per_token == pytest.approx(nats, rel=1e-12)


def test_the_side_is_a_hash_of_the_content(tmp_path: Path) -> None:
    given = texts(120)
    make(tmp_path / "one", write_jsonl(tmp_path / "a.jsonl", given), validation_fraction=0.3)
    more = write_jsonl(tmp_path / "more.jsonl", [*texts(60, 500), *reversed(given)])
    make(tmp_path / "two", more, validation_fraction=0.3)
    (_, validation), (train, same) = read_back(tmp_path / "one"), read_back(tmp_path / "two")
    assert set(validation) <= set(same)
    assert set(train).isdisjoint(same)
    for text in given:
        word = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
        assert (text in validation) == (word / 2**64 < 0.3)


@pytest.mark.parametrize("shard_tokens", [700, 2**20])
def test_workers_and_shards_change_nothing_in_the_tokens(tmp_path: Path, shard_tokens: int) -> None:
    folder = tmp_path / "text"
    write_jsonl(folder / "a.jsonl", texts(90))
    write_parquet(folder / "b.parquet", texts(90, 50))
    for number, text in enumerate(texts(30, 200)):
        (folder / f"{number}.txt").write_text(text, encoding="utf-8")
    other = write_jsonl(tmp_path / "c.jsonl", [*texts(10, 205), *texts(30, 300)])
    settings = {"tokenizer": "bpe", "vocab": 280, "shard_tokens": shard_tokens}
    first = make(tmp_path / "1", folder, other, **settings)
    assert make(tmp_path / "2", folder, other, workers=2, **settings) == first
    assert files(tmp_path / "1") == files(tmp_path / "2")
    assert [(d.documents, d.duplicates) for d in first.domains] == [(170, 40), (30, 10)]
    assert "(32 files)" in first.origin["text"]
    streams = [numbers(tmp_path / "1", d.train) for d in first.domains]
    whole = Dataset.open(tmp_path / "1").tokens("train")
    assert [one.window(0, len(one)).tolist() for one in whole] == streams


def test_exact_bytes_of_a_hugging_face_folder(tmp_path: Path) -> None:
    given = texts(100)
    coder = train_bpe([[Document("a", "".join(given).encode())]], 300)
    (tmp_path / "tokenizer").mkdir()
    coder.inner.save(str(tmp_path / "tokenizer" / "tokenizer.json"))
    (tmp_path / "tokenizer" / "config.json").write_text("{}")
    source = write_parquet(tmp_path / "a.parquet", given)
    facts = make(tmp_path / "out", source, tokenizer=str(tmp_path / "tokenizer")).domains[0]
    sizes = numbers(tmp_path / "out", facts.validation_sizes)
    assert sum(sizes) == facts.validation_bytes
    dataset = Dataset.open(tmp_path / "out")
    decoded = [dataset.tokenizer().decode(ids) for ids in documents(tmp_path / "out", 0, "train")]
    decoded += [
        dataset.tokenizer().decode(ids) for ids in documents(tmp_path / "out", 0, "validation")
    ]
    assert sorted(decoded) == sorted(given)
    stream = numbers(tmp_path / "out", facts.validation)
    table = coder.table
    assert table is not None
    assert sizes == [0 if n == coder.document else int(table[n]) for n in stream]


def test_the_cap_is_text_before_duplicates(tmp_path: Path) -> None:
    given = texts(200)
    given[10:40] = given[:30]
    source = write_jsonl(tmp_path / "a.jsonl", given)
    before, expected = 0, []
    for text in given:
        if before >= 9000:
            break
        expected.append(text)
        before += len(text.encode())
    for workers in (1, 2):
        out = tmp_path / str(workers)
        facts = make(out, source, megabytes=0.009, workers=workers).domains[0]
        assert facts.documents + facts.duplicates == len(expected)
        train, validation = read_back(out)
        assert sorted(train + validation) == sorted(set(expected))
    assert files(tmp_path / "1") == files(tmp_path / "2")


KILLED = """
import os, signal, sys
from pathlib import Path
from depthbench.data.config import PrepareConfig
from depthbench.data.scale import prepare_folder

left = int(sys.argv[3])
real = os.fsync

def fsync(handle):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    real(handle)

os.fsync = fsync
config = PrepareConfig.model_validate_json(sys.argv[1])
prepare_folder(config, Path(sys.argv[2]), workers=int(sys.argv[4]), unit_bytes=int(sys.argv[5]))
"""


def killed_at(config: PrepareConfig, out: Path, moment: int, workers: int = 1) -> bool:
    """Whether a run ends by its own SIGKILL at the ``moment``-th time it secures a file."""
    numbers = [str(number) for number in (moment, workers, UNIT)]
    command = [sys.executable, "-c", KILLED, config.model_dump_json(), str(out), *numbers]
    code = subprocess.run(command, timeout=120).returncode
    assert code in (0, -signal.SIGKILL)
    return code != 0


@pytest.fixture
def three(tmp_path: Path) -> PrepareConfig:
    """Three units of work."""
    source = write_jsonl(tmp_path / "a.jsonl", [*texts(120), *texts(20)])
    assert 2 * UNIT < source.stat().st_size < 3 * UNIT
    return PrepareConfig(paths=(str(source),), tokenizer="bpe", vocab=270, shard_tokens=1500)


def test_killed_again_and_again(three: PrepareConfig, tmp_path: Path) -> None:
    """Five writes a run: plan, tokenizer and units, then the shards, then the manifest."""
    prepare_folder(three, tmp_path / "calm", workers=1, unit_bytes=UNIT)
    kills = 0
    while killed_at(three, tmp_path / "out", 6):
        kills += 1
        assert (tmp_path / "out" / ".work").exists()
        assert kills < 10
    assert kills >= 3
    assert files(tmp_path / "out") == files(tmp_path / "calm")


@pytest.mark.slow
@pytest.mark.parametrize("moment", range(1, 24))
def test_killed_at_any_moment(three: PrepareConfig, tmp_path: Path, moment: int) -> None:
    prepare_folder(three, tmp_path / "calm", workers=1, unit_bytes=UNIT)
    killed = killed_at(three, tmp_path / "out", moment, workers=2)
    assert killed or moment > 15
    prepare_folder(three, tmp_path / "out", workers=2, unit_bytes=UNIT)
    assert files(tmp_path / "out") == files(tmp_path / "calm")


def test_what_is_done_is_not_done_again(three: PrepareConfig, tmp_path: Path) -> None:
    """Units that are in the journal, whole, are left; a torn line and a lost file are not."""
    out = tmp_path / "out"
    assert killed_at(three, out, 8)
    journal = out / ".work" / "journal.jsonl"
    lines = journal.read_text().splitlines()
    units = [json.loads(line)["unit"] for line in lines]
    assert sorted(units) == [f"00-00000{n}" for n in range(3)]
    journal.write_text("\n".join(lines[:2]) + '\n{"unit": "00-00')
    (out / ".work" / f"{units[0]}.unit").unlink()
    kept = out / ".work" / f"{units[1]}.unit"
    before = kept.stat().st_mtime_ns
    seen: list[int] = []

    def look(_: object) -> None:
        seen.append(kept.stat().st_mtime_ns)

    prepare_folder(three, out, workers=1, unit_bytes=UNIT, say=look)
    assert set(seen) == {before}
    prepare_folder(three, tmp_path / "calm", workers=1, unit_bytes=UNIT)
    assert files(out) == files(tmp_path / "calm")


def test_killed_between_the_manifest_and_the_end(three: PrepareConfig, tmp_path: Path) -> None:
    done = prepare_folder(three, tmp_path / "out", workers=1, unit_bytes=UNIT)
    before = files(tmp_path / "out")
    (tmp_path / "out" / ".work").mkdir()
    (tmp_path / "out" / ".work" / "00-000000.unit").write_bytes(b"x")
    assert prepare_folder(three, tmp_path / "out", workers=1, unit_bytes=UNIT) == done
    assert files(tmp_path / "out") == before


def test_an_altered_shard_is_written_again(three: PrepareConfig, tmp_path: Path) -> None:
    done = prepare_folder(three, tmp_path / "out", workers=1, unit_bytes=UNIT)
    before = files(tmp_path / "out")
    (tmp_path / "out" / done.domains[0].train_lengths[0].file).write_bytes(b"1234")
    assert prepare_folder(three, tmp_path / "out", workers=1, unit_bytes=UNIT) == done
    assert files(tmp_path / "out") == before


def test_a_folder_of_another_dataset_is_refused(three: PrepareConfig, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert killed_at(three, out, 5)
    other = three.model_copy(update={"shard_tokens": 99})
    with pytest.raises(DepthbenchError, match=r"unfinished preparation that differs in shard_to"):
        prepare_folder(other, out, workers=1, unit_bytes=UNIT)
    with locked(out), pytest.raises(DepthbenchError, match="being prepared by another process"):
        prepare_folder(three, out, workers=1, unit_bytes=UNIT)
    prepare_folder(three, out, workers=1, unit_bytes=UNIT)
    with pytest.raises(DepthbenchError, match="holds a dataset that differs in shard_tokens"):
        prepare_folder(other, out)
    source = Path(three.paths[0])
    source.write_text(source.read_text() + '{"text": "more"}\n')
    with pytest.raises(DepthbenchError, match="differs in source or tokenizer files"):
        prepare_folder(three, out)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["one"], r"domain 'a' is a single document.*data\.paths"),
        (["two", "three"], r"none of its 2 documents falls to validation at .*= 0\.01\. Set it to"),
        ([" ", ""], r"domain 'a' holds no readable text"),
    ],
)
def test_too_few_documents(tmp_path: Path, given: list[str], message: str) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", given)
    with pytest.raises(DepthbenchError, match=message) as seen:
        make(tmp_path / "out", source, validation_fraction=0.01)
    assert "\n" not in str(seen.value)


def test_nothing_stays_of_a_refused_run(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", texts(5))
    with pytest.raises(DepthbenchError, match="vocab = 9000: the training text gives only"):
        make(tmp_path / "out", source, tokenizer="bpe", vocab=9000)
    with pytest.raises(DepthbenchError, match=r"is a folder without tokenizer\.json"):
        make(tmp_path / "out", source, tokenizer=str(tmp_path))
    with pytest.raises(DepthbenchError, match="has no field 'body'"):
        make(tmp_path / "out", source, text_field="body")
    assert not (tmp_path / "out").exists()


def test_broken_lines_are_named_in_any_part(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", texts(100))
    lines = source.read_text().splitlines()
    lines[77] = '{"text": '
    source.write_text("\n".join(lines))
    assert source.stat().st_size > UNIT
    with pytest.raises(DepthbenchError, match=r"a\.jsonl line 78 is no valid JSON"):
        make(tmp_path / "out", source)


def test_text_that_is_no_utf8_is_left_out_and_counted(tmp_path: Path) -> None:
    folder = tmp_path / "text"
    write_jsonl(folder / "a.jsonl", texts(60))
    (folder / "b.txt").write_bytes(b"\xff\xfe depth")
    (folder / "c.txt").write_bytes(b"\0")
    facts = make(tmp_path / "out", folder, tokenizer="bpe", vocab=270).domains[0]
    assert facts.documents == 60
    note = "left out, files and documents: 2; the first: b.txt is no valid UTF-8"
    assert facts.notes == (note,)


def test_no_file_in_the_journal_before_it_is_whole(tmp_path: Path) -> None:
    """A unit whose file is shorter than the journal says does not count."""
    source = write_jsonl(tmp_path / "a.jsonl", texts(120))
    config = PrepareConfig(paths=(str(source),))
    assert killed_at(config, tmp_path / "out", 6)
    journal = Journal(tmp_path / "out")
    plan = json.loads((journal.folder / "plan.json").read_text())
    journal.begin(plan)
    first, *others = journal.units
    assert others
    unit = journal.folder / f"{first}.unit"
    unit.write_bytes(unit.read_bytes()[:-1])
    again = Journal(tmp_path / "out")
    again.begin(plan)
    assert list(again.units) == others
