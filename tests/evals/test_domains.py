"""Loss by domain against one forward for every token, in float64."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from depthbench.data.sources import Document
from depthbench.errors import DepthbenchError
from depthbench.evals.domains import DomainConfig, measure_domains
from depthbench.evals.measure import Machinery
from depthbench.evals.programs import Asked, edits_of
from depthbench.evals.windows import WindowConfig, windows_of
from depthbench.probes.load import open_model
from tests.evals.small import bytes_model, loss_at, machinery_of, reader_of
from tests.probes.test_gguf import real, smollm

TEXTS = {"one": "depth is not width, naïve café", "two": "a stream\n", "six": "token " * 7}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("domains")
    for name, text in TEXTS.items():
        (root / "words").mkdir(exist_ok=True)
        (root / "words" / f"{name}.txt").write_text(text, encoding="utf-8")
    (root / "raw.txt").write_bytes(b"\xff\xfe ab \xc3")
    return root


def config_of(*paths: Path, **windows: Any) -> DomainConfig:
    return DomainConfig(paths=tuple(map(str, paths)), windows=WindowConfig(**windows))


def by_hand(
    data: bytes, length: int, stride: int, bos: str, model: Any, blocks: Any
) -> list[float]:
    """Every token of ``data`` in the earliest row that holds it."""
    ids = [256, *data] if bos == "document" else list(data)
    front = [256] if bos == "always" else []
    body = length - len(front)
    found = []
    for place in range(0 if front else 1, len(ids)):
        begin = 0
        while begin + body <= place:
            begin += stride
        row = [*front, *ids[begin : place + 1]]
        found.append(loss_at(model, row, len(row) - 1, blocks))
    return found


@pytest.mark.parametrize("bos", ["document", "always", "never"])
@pytest.mark.parametrize(
    ("length", "stride"),
    [(8, 3), (9, 1), *(pytest.param(*one, marks=pytest.mark.slow) for one in ((64, 32), (8, 7)))],
)
def test_equals_one_forward_a_token(folder: Path, bos: str, length: int, stride: int) -> None:
    model = bytes_model()
    config = config_of(folder / "words", length=length, stride=stride, bos=bos)
    [found] = measure_domains(machinery_of(model, batch=3), reader_of(), config)
    hand = [
        loss
        for text in TEXTS.values()
        for loss in by_hand(text.encode(), length, stride, bos, model, range(4))
    ]
    size = sum(len(text.encode()) for text in TEXTS.values())
    lost = len(TEXTS) if bos == "never" else 0
    assert found.counts["tokens"] == len(hand) == size - lost
    assert found.counts["bytes"] == size - lost
    assert found.counts["bytes_read"] == size
    nats, bits = found.number("nats_per_token"), found.number("bits_per_byte")
    assert nats is not None
    assert bits is not None
    assert nats.value == pytest.approx(sum(hand) / len(hand), rel=1e-12)
    assert bits.value == pytest.approx(sum(hand) / math.log(2) / (size - lost), rel=1e-12)
    assert found.policy["bos"] == bos
    assert found.policy["bos_token"] == (None if bos == "never" else 256)


def test_batch_and_padding_change_nothing(folder: Path) -> None:
    """Sizes 1 and 8, padded on the right and left."""
    model = bytes_model("hc")
    config = config_of(folder / "words", length=12, stride=5)
    values = []
    for settings in ({"batch": 1}, {"batch": 8}, {"batch": 8, "left": True}):
        [found] = measure_domains(machinery_of(model, **settings), reader_of(), config)
        number = found.number("nats_per_token")
        assert number is not None
        values.append(number.value)
    assert values[1] == pytest.approx(values[0], rel=1e-12)
    assert values[2] == pytest.approx(values[0], rel=1e-12)


@pytest.mark.parametrize("design", ["prenorm", "attnres"])
def test_programs_share_rows(folder: Path, design: str) -> None:
    """A sweep gives what each program gives alone, by the model's own forward."""
    model = bytes_model(design)
    edits = edits_of(Asked(sweep="skip"), 4)
    config = config_of(folder / "words" / "one.txt", length=64)
    found = list(measure_domains(machinery_of(model, edits), reader_of(), config))
    assert [one.program for one in found] == ["plain", "skip 0", "skip 1", "skip 2", "skip 3"]
    for one in found:
        hand = by_hand(TEXTS["one"].encode(), 64, 32, "document", model, one.blocks)
        number = one.number("nats_per_token")
        assert number is not None
        assert number.value == pytest.approx(sum(hand) / len(hand), rel=1e-10)


def test_bytes_add_up_without_unicode(folder: Path) -> None:
    """Two domains, and both as one: the mean over tokens, not over domains."""
    model = bytes_model()
    config = config_of(folder / "words", folder / "raw.txt", length=16)
    words, raw, every = measure_domains(machinery_of(model), reader_of(), config)
    assert raw.counts["bytes"] == 7
    assert every.name == "all domains"
    assert every.counts["bytes"] == words.counts["bytes"] + 7
    sums = [one.counts["tokens"] * one.numbers[0].value for one in (words, raw)]  # pyright: ignore
    assert every.numbers[0].value == pytest.approx(sum(sums) / every.counts["tokens"], rel=1e-12)


def test_interval_is_over_documents(tmp_path: Path) -> None:
    """Under five documents none; above, it holds the value."""
    (tmp_path / "lines.jsonl").write_text(
        "\n".join(f'{{"text": "{"ab" * n} line {n}"}}' for n in range(1, 9)), encoding="utf-8"
    )
    config = config_of(tmp_path / "lines.jsonl")
    [found] = measure_domains(machinery_of(bytes_model()), reader_of(), config)
    number = found.numbers[0]
    assert number.low is not None
    assert number.value is not None
    assert number.high is not None
    assert number.low < number.value < number.high
    assert found.counts["documents"] == 8


def test_text_is_cut_to_the_tokens_asked_for(folder: Path) -> None:
    given = {"paths": (str(folder / "words" / "six.txt"),), "tokens": 10}
    [found] = measure_domains(machinery_of(bytes_model()), reader_of(), DomainConfig(**given))
    assert found.counts["tokens"] == found.counts["bytes"] == found.counts["bytes_read"] == 10
    assert found.notes == ("the first 10 tokens of the text alone",)


def test_every_token_is_scored_once_whatever_the_stride() -> None:
    for length in range(2, 9):
        for stride in range(1, length):
            for bos, size in (("always", 11), ("document", 11), ("never", 10)):
                config = WindowConfig(length=length, stride=stride, bos=bos)  # pyright: ignore
                token = None if bos == "never" else 99
                rows = list(windows_of(range(11), [1] * 11, config, token, 0))
                scored = [token for row in rows for token in row.ids[row.first :]]
                assert scored == list(range(11 - size, 11))
                assert all(len(row.ids) <= length and row.first >= 1 for row in rows)
                assert sum(row.bytes for row in rows) == size


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"length": 8, "stride": 8}, "stride = 8 leaves tokens of a row of 8 without context"),
        ({"bos": "sometimes"}, "bos = 'sometimes'"),
    ],
)
def test_bad_windows(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(DepthbenchError, match=words):
        WindowConfig.parse(settings)


@pytest.mark.parametrize(("most", "length"), [(None, 512), (128, 128), (2048, 512)])
def test_rows_are_as_long_as_the_model_was_trained_on(most: int | None, length: int) -> None:
    fitted = WindowConfig().fitted(most)
    assert (fitted.row, fitted.step) == (length, length // 2)
    assert WindowConfig(length=64).fitted(most).row == 64
    with pytest.raises(DepthbenchError, match="stride = 200 leaves tokens of a row of 128"):
        WindowConfig(stride=200).fitted(128)


def test_a_tokenizer_without_a_token_for_it_is_refused(folder: Path) -> None:
    reader = reader_of()
    bare = type(reader)(reader.coder, lambda _: None, 8, 257)
    machinery = machinery_of(bytes_model())
    with pytest.raises(DepthbenchError, match="bos = document: the model's tokenizer"):
        list(measure_domains(machinery, bare, config_of(folder / "words", length=8)))
    with pytest.raises(DepthbenchError, match="length = 9: the model has 8 positions"):
        list(measure_domains(machinery, bare, config_of(folder / "words", length=9)))


@real
@pytest.mark.slow
def test_a_real_model_over_windows_batches_and_padding(tmp_path: Path) -> None:
    """SmolLM2: one forward of transformers a token; batches of 1 and 8, padded on either side."""
    path = smollm()
    assert path is not None
    texts = [
        "The capital of France is Paris, and the capital of Germany is Berlin.",
        "colorless green ideas sleep furiously the of and to",
        "Zwei Maße: naïve façades — 12345 + 67 = 12412.",
    ]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_text(text, encoding="utf-8")
    opened = open_model(path)
    subject, reader = opened.subject, opened.reader()
    bos, length, stride = reader.start("always"), 9, 4
    assert bos is not None
    hand: list[float] = []
    for text in texts:
        ids = [bos, *reader.coder.encode(Document("text", text.encode())).ids.tolist()]
        for place in range(1, len(ids)):
            begin = 0
            while begin + length <= place:
                begin += stride
            with torch.no_grad():
                out: Any = subject.module(torch.tensor([ids[begin:place]]), use_cache=False)
            logits = out.logits[0, -1].double()
            hand.append(float(torch.logsumexp(logits, 0) - logits[ids[place]]))
    config = config_of(tmp_path, length=length, stride=stride)
    edits = edits_of(Asked(), subject.layers)
    for settings in ({"batch": 1}, {"batch": 8}, {"batch": 8, "left": True}):
        machinery = Machinery(subject, edits, **settings)
        [found] = measure_domains(machinery, reader, config)
        nats, bits = found.numbers
        assert found.counts["tokens"] == len(hand)
        size = sum(len(text.encode()) for text in texts)
        assert found.counts["bytes"] == found.counts["bytes_read"] == size
        assert nats.value == pytest.approx(sum(hand) / len(hand), rel=2e-5)
        assert bits.value == pytest.approx(sum(hand) / math.log(2) / size, rel=2e-5)
