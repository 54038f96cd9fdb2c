import json
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from depthbench.data.config import DataConfig
from depthbench.data.dataset import Dataset, default_cache, prepare
from depthbench.data.manifest import DomainFacts
from depthbench.errors import DepthbenchError
from depthbench.marks import Marks


@pytest.fixture
def config(folder: Path, tmp_path: Path) -> DataConfig:
    """Two domains: 40 documents in a folder, and one small file of bytes that are no UTF-8."""
    (tmp_path / "raw.txt").write_bytes(bytes(range(1, 256)) * 8)
    return DataConfig(paths=(str(folder), str(tmp_path / "raw.txt")), validation_fraction=0.2)


@pytest.fixture
def dataset(config: DataConfig, tmp_path: Path) -> Dataset:
    return prepare(config, tmp_path / "cache")


def tokens(dataset: Dataset, domain: DomainFacts, side: str) -> list[int]:
    (shard,) = {"train": domain.train, "validation": domain.validation}[side]
    return np.fromfile(dataset.folder / shard.file, shard.dtype).tolist()


def documents(stream: list[int]) -> list[bytes]:
    """The text between the document tokens of a byte stream."""
    assert stream[0] == 256
    found: list[bytearray] = []
    for token in stream:
        if token == 256:
            found.append(bytearray())
        else:
            found[-1].append(token)
    return [bytes(one) for one in found]


def test_every_document_once_with_one_document_token(dataset: Dataset, folder: Path) -> None:
    """CASES 29 and 31: the bytes of the shards are the bytes of the files."""
    words, raw = dataset.manifest.domains
    train = documents(tokens(dataset, words, "train"))
    validation = documents(tokens(dataset, words, "validation"))
    files = {file.read_bytes() for file in folder.iterdir()}
    assert sorted(train + validation) == sorted(files)
    assert set(train).isdisjoint(validation)
    assert (words.documents, words.duplicates, words.split) == (40, 5, "document")
    assert (len(train), len(validation)) == (words.train_documents, words.validation_documents)
    assert words.train_bytes == sum(map(len, train))
    assert words.train_tokens == words.train_bytes + len(train)
    for side, texts in (("train", train), ("validation", validation)):
        lengths = dataset.lengths(side)[0]
        assert lengths.window(0, len(lengths)).tolist() == [len(text) + 1 for text in texts]
    assert words.train_bytes + words.validation_bytes == sum(map(len, files))

    (start,) = documents(tokens(dataset, raw, "train"))
    (end,) = documents(tokens(dataset, raw, "validation"))
    assert start + end == bytes(range(1, 256)) * 8
    assert raw.split == "position"
    assert "split by position" in raw.notes[0]
    sizes = np.fromfile(dataset.folder / raw.validation_sizes[0].file, "<u4")
    assert sizes.tolist() == [0] + [1] * len(end)


def test_target_bytes_of_a_bpe_add_up_to_the_text(config: DataConfig, tmp_path: Path) -> None:
    """CASES 31 and 39."""
    only_words = config.model_copy(update={"paths": config.paths[:1]})
    chosen = only_words.model_copy(update={"tokenizer": "bpe", "vocab": 300})
    dataset = prepare(chosen, tmp_path / "cache")
    (words,) = dataset.manifest.domains
    (reference,) = prepare(only_words, tmp_path / "cache").manifest.domains
    sizes = np.fromfile(dataset.folder / words.validation_sizes[0].file, "<u4")
    assert sizes.sum() == words.validation_bytes == reference.validation_bytes
    assert words.train_bytes == reference.train_bytes
    assert words.train_tokens < reference.train_tokens
    stream = tokens(dataset, words, "train") + tokens(dataset, words, "validation")
    assert dataset.vocab == dataset.manifest.vocab == 300
    assert max(stream) < 300
    assert stream.count(dataset.manifest.document_token) == 40
    assert dataset.manifest.ln_vocab == pytest.approx(5.703782, abs=1e-6)
    assert (dataset.folder / "tokenizer.json").exists()


def test_manifest_says_what_is_there(dataset: Dataset, config: DataConfig) -> None:
    manifest = dataset.manifest
    assert (manifest.vocab, manifest.document_token) == (257, 256)
    assert "starts with one document token (id 256)" in manifest.document_policy
    assert manifest.marks == Marks(document=256, sentence_ends=(33, 46, 63))
    assert manifest.origin["words"] == f"{config.paths[0]} (45 files)"
    words = manifest.domains[0]
    counts = Counter(tokens(dataset, words, "train"))
    total = counts.total()
    nats = -sum(n / total * math.log(n / total) for n in counts.values())
    assert words.unigram_nats_per_token == pytest.approx(nats, rel=1e-12)
    bits = nats * total / math.log(2) / words.train_bytes
    assert words.unigram_bits_per_byte == pytest.approx(bits, rel=1e-12)
    assert words.unigram_bits_per_byte < 5


def test_batch_is_a_pure_function_of_seed_and_step(dataset: Dataset) -> None:
    inputs, targets = dataset.batch(seed=3, step=17, sequences=8, length=32)
    for step in (0, 16, 5):
        dataset.batch(3, step, 8, 32)
    again = Dataset.open(dataset.folder).batch(3, 17, 8, 32)
    assert torch.equal(inputs, again[0])
    assert torch.equal(targets, again[1])
    assert inputs.dtype == targets.dtype == torch.int64
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert not torch.equal(inputs, dataset.batch(3, 18, 8, 32)[0])
    assert not torch.equal(inputs, dataset.batch(4, 17, 8, 32)[0])
    # fewer sequences are the first of more: the draw of one does not depend on the others
    assert torch.equal(dataset.batch(3, 17, 2, 32)[0], inputs[:2])


def test_batch_draws_these_positions(dataset: Dataset) -> None:
    """The raw Philox stream, which numpy keeps, mapped to positions: numbers that never change."""
    philox = np.random.Philox(key=np.array([3, 17], np.uint64))
    words, raw = (tokens(dataset, domain, "train") for domain in dataset.manifest.domains)
    rooms = len(words) - 32, len(raw) - 32
    expected = []
    for word in philox.random_raw(8).tolist():
        position = word * sum(rooms) >> 64
        stream, start = (words, position) if position < rooms[0] else (raw, position - rooms[0])
        expected.append(stream[start : start + 33])
    inputs, targets = dataset.batch(3, 17, 8, 32)
    assert inputs.tolist() == [window[:-1] for window in expected]
    assert targets.tolist() == [window[1:] for window in expected]
    fixed = np.random.Philox(key=np.array([0, 1], np.uint64)).random_raw(1).tolist()
    assert fixed == [15003734204198539638]


def test_every_position_of_every_domain_is_drawn(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.txt" for name in "ab"]
    files[0].write_bytes(bytes(range(1, 41)))
    files[1].write_bytes(bytes(range(101, 131)))
    config = DataConfig(paths=tuple(map(str, files)), validation_fraction=0.5)
    dataset = prepare(config, tmp_path / "cache")
    inputs, targets = dataset.batch(0, 0, 3000, 10)
    drawn = Counter(inputs[:, 0].tolist())
    assert set(drawn) == {256, *range(1, 11), *range(101, 106)}
    # 17 positions, two of them at a document token
    assert min(drawn.values()) > 120
    assert max(count for token, count in drawn.items() if token != 256) < 240
    assert set(targets[:, -1].tolist()) == {*range(10, 21), *range(110, 116)}


def test_sequences_come_from_domains_in_proportion_to_size(dataset: Dataset) -> None:
    inputs, _ = dataset.batch(0, 0, 4000, 16)
    words, raw = dataset.manifest.domains
    assert words.train_tokens > 5 * raw.train_tokens
    # byte values that follow one another are text of the second domain
    runs = ((inputs[:, 1:] - inputs[:, :-1]) == 1).double().mean(dim=1) > 0.8
    expected = raw.train_tokens / (words.train_tokens + raw.train_tokens)
    assert runs.double().mean().item() == pytest.approx(expected, abs=0.02)


def test_validation_windows_are_fixed_spread_and_apart(dataset: Dataset) -> None:
    sets = dataset.validation(length=20, tokens=205)
    assert list(sets) == ["words", "raw"]
    again = Dataset.open(dataset.folder).validation(length=20, tokens=205)
    for domain in dataset.manifest.domains:
        one = sets[domain.name]
        stream = tokens(dataset, domain, "validation")
        count = len(stream) - 1
        starts = [i * count // 10 for i in range(10)]
        assert min(np.diff([*starts, count])) >= 20
        assert one.inputs.tolist() == [stream[s : s + 20] for s in starts]
        assert one.targets.tolist() == [stream[s + 1 : s + 21] for s in starts]
        assert torch.equal(one.target_bytes, (one.targets != 256).long())
        assert torch.equal(one.targets, again[domain.name].targets)
        counts = Counter(one.targets.flatten().tolist())
        nats = -sum(n * math.log(n / 200) for n in counts.values())
        bits = nats / math.log(2) / int(one.target_bytes.sum())
        assert one.unigram_bits_per_byte == pytest.approx(bits, rel=1e-12)


def test_document_tokens_among_the_targets_have_no_bytes(dataset: Dataset) -> None:
    one = dataset.validation(20, 10**6)["words"]
    starts = int((one.targets == 256).sum())
    assert 0 < starts < dataset.manifest.domains[0].validation_documents
    assert int(one.target_bytes.sum()) == one.targets.numel() - starts
    counts = torch.bincount(one.targets.flatten()).double()
    nats = torch.distributions.Categorical(probs=counts).entropy().item()
    bits = nats / math.log(2) * one.targets.numel() / (one.targets.numel() - starts)
    assert one.unigram_bits_per_byte == pytest.approx(bits, rel=1e-9)


def test_validation_takes_what_there_is(dataset: Dataset) -> None:
    raw = dataset.manifest.domains[1]
    windows = (raw.validation_tokens - 1) // 50
    assert dataset.validation(50, 10**9)["raw"].inputs.shape == (windows, 50)


def test_too_short_for_a_sequence(dataset: Dataset) -> None:
    with pytest.raises(
        DepthbenchError, match=r"domain 'raw' has 1541 training tokens, but a seq.*5001"
    ):
        dataset.batch(0, 0, 1, 5000)
    with pytest.raises(DepthbenchError, match="domain 'raw' has 501 validation tokens"):
        dataset.validation(501, 10**6)
    with pytest.raises(DepthbenchError, match="validation tokens = 10 is less than one sequence"):
        dataset.validation(20, 10)


def test_the_second_time_opens_what_is_there(config: DataConfig, tmp_path: Path) -> None:
    said: list[str] = []
    first = prepare(config, tmp_path / "cache", said.append)
    assert said[:3] == ["preparing words, raw", "reading words", "reading raw"]
    assert said[3:] == ["tokenising words", "tokenising raw"]
    before = {file: file.stat().st_mtime_ns for file in first.folder.iterdir()}
    second = prepare(config, tmp_path / "cache", said.append)
    assert len(said) == 5
    assert {file: file.stat().st_mtime_ns for file in second.folder.iterdir()} == before
    assert second.manifest == first.manifest


def test_changed_text_or_config_is_another_dataset(
    config: DataConfig, dataset: Dataset, tmp_path: Path
) -> None:
    other = config.model_copy(update={"validation_fraction": 0.3})
    found = prepare(other, tmp_path / "cache")
    assert found.folder != dataset.folder
    assert found.manifest.hash != dataset.manifest.hash
    file = Path(config.paths[0]) / "07.txt"
    file.write_bytes(b"x" + file.read_bytes()[1:])
    changed = prepare(config, tmp_path / "cache")
    assert changed.folder != dataset.folder
    assert changed.manifest.hash != dataset.manifest.hash


def test_the_hash_names_the_data_not_the_place(
    config: DataConfig, dataset: Dataset, tmp_path: Path
) -> None:
    (tmp_path / "moved").mkdir()
    moved = [Path(path).rename(tmp_path / "moved" / Path(path).name) for path in config.paths]
    there = config.model_copy(update={"paths": tuple(map(str, moved))})
    found = prepare(there, tmp_path / "cache-2")
    assert found.manifest.hash == dataset.manifest.hash
    assert len(found.manifest.hash) == 16


@pytest.mark.parametrize("harm", ["flip", "cut", "remove", "manifest", "no manifest"])
def test_an_altered_shard_is_seen_and_repaired(
    config: DataConfig, tmp_path: Path, harm: str
) -> None:
    dataset = prepare(config, tmp_path / "cache")
    content = {file.name: file.read_bytes() for file in dataset.folder.iterdir()}
    shard = dataset.folder / dataset.manifest.domains[0].train[0].file
    manifest = dataset.folder / "manifest.json"
    if harm == "flip":
        shard.write_bytes(b"\1" + content[shard.name][1:])
    elif harm == "cut":
        shard.write_bytes(content[shard.name][:-2])
    elif harm == "remove":
        shard.unlink()
    elif harm == "manifest":
        manifest.write_bytes(content[manifest.name][:100])
    else:
        manifest.unlink()
    with pytest.raises(DepthbenchError, match="repare the data again") as caught:
        Dataset.open(dataset.folder)
    assert "\n" not in str(caught.value)
    repaired = prepare(config, tmp_path / "cache")
    assert {file.name: file.read_bytes() for file in repaired.folder.iterdir()} == content


def test_validation_sizes_are_verified_too(dataset: Dataset) -> None:
    sizes = dataset.folder / dataset.manifest.domains[1].validation_sizes[0].file
    sizes.write_bytes(b"\1" + sizes.read_bytes()[1:])
    with pytest.raises(DepthbenchError, match="is not what the manifest says"):
        Dataset.open(dataset.folder)


def test_nothing_is_left_of_a_failed_build(config: DataConfig, tmp_path: Path) -> None:
    bpe = config.model_copy(update={"tokenizer": "bpe", "vocab": 260})
    with pytest.raises(DepthbenchError, match=r"raw\.txt.*no valid UTF-8"):
        prepare(bpe, tmp_path / "cache")
    (left,) = (tmp_path / "cache").iterdir()
    assert not (left / "manifest.json").exists()
    assert not [file.name for file in left.iterdir() if file.name.startswith(".")]


def test_two_processes_at_once(config: DataConfig, dataset: Dataset, tmp_path: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from depthbench.data.config import DataConfig\n"
        "from depthbench.data.dataset import prepare\n"
        "config = DataConfig.model_validate_json(sys.argv[1])\n"
        "print(prepare(config, pathlib.Path(sys.argv[2])).manifest.hash)\n"
    )
    command = [sys.executable, "-c", code, json.dumps(config.resolved()), str(tmp_path / "both")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=60)[0].strip() for process in running]
    assert said == [dataset.manifest.hash] * 2
    (folder,) = (tmp_path / "both").iterdir()
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {
        file.name: file.read_bytes() for file in dataset.folder.iterdir()
    }


def test_a_cache_that_is_no_folder(config: DataConfig, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(DepthbenchError, match="cannot create the folder") as caught:
        prepare(config, tmp_path / "cache")
    assert "\n" not in str(caught.value)


def test_default_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(tmp_path))
    assert default_cache() == tmp_path
    monkeypatch.delenv("DEPTHBENCH_CACHE")
    assert default_cache().name == "depthbench"
    if sys.platform == "linux":
        monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path))
        assert default_cache() == tmp_path / "depthbench"


def test_one_line_a_document_file(text: Callable[[int, int], str], tmp_path: Path) -> None:
    lines = [json.dumps({"text": text(n, 20)}) for n in range(50)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    dataset = prepare(DataConfig(paths=(str(tmp_path / "a.jsonl"),)), tmp_path / "cache")
    (domain,) = dataset.manifest.domains
    read = documents(tokens(dataset, domain, "train"))
    read += documents(tokens(dataset, domain, "validation"))
    assert sorted(read) == sorted(text(n, 20).encode() for n in range(50))


def test_a_manifest_of_an_earlier_format_is_refused_by_name_and_built_anew(
    config: DataConfig, dataset: Dataset, tmp_path: Path
) -> None:
    file = dataset.folder / "manifest.json"
    facts = json.loads(file.read_text())
    del facts["sentence_ends"]
    file.write_text(json.dumps(facts | {"format": 1}))
    with pytest.raises(DepthbenchError) as error:
        Dataset.open(dataset.folder)
    assert str(error.value) == (
        f"{file} has format 1, but this version reads 3. Prepare the data again"
    )
    again = prepare(config, tmp_path / "cache")
    assert again.manifest == dataset.manifest


def test_marks_of_a_bpe_are_its_tokenizers(config: DataConfig, tmp_path: Path) -> None:
    (tmp_path / "told.txt").write_text("depth. width? stream! token, branch " * 400)
    chosen = {"paths": (str(tmp_path / "told.txt"),), "tokenizer": "bpe", "vocab": 270}
    manifest = prepare(config.model_copy(update=chosen), tmp_path / "cache").manifest
    assert manifest.marks.document == manifest.document_token
    assert len(manifest.marks.sentence_ends) >= 3
    assert manifest.document_token not in manifest.marks.sentence_ends
