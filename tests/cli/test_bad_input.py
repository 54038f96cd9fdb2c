"""Bad input to the whole command line: one line, exit code 2, nothing written half."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tomli_w

from depthbench.cli.app import execute
from tests.small import study_tables, write_text

Run = Callable[..., str]


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study file that is in order, with its text beside it."""
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    text = write_text(tmp_path)
    path = tmp_path / "study.toml"
    path.write_text(tomli_w.dumps(study_tables(text)))
    return path


@pytest.fixture
def refused(study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """``refused(*arguments)``: the one line that the command answers with."""

    def run(*arguments: str) -> str:
        before = sorted(tmp_path.iterdir())
        code = execute(list(arguments))
        out, err = capsys.readouterr()
        assert code == 2, f"{arguments}: exit code {code}: {out}{err}"
        assert out == ""
        assert err.count("\n") == 1, f"not one line: {err}"
        assert err.startswith("depthbench: ")
        assert "Traceback" not in err
        left = {path.name for path in tmp_path.iterdir()} - {path.name for path in before}
        assert left <= {"cache"}, f"left behind: {left}"
        return err.rstrip("\n")

    return run


SETTINGS = {
    "unknown design": (["designs=['prenom']"], ["'prenom'", "did you mean 'prenorm'?"]),
    "misspelt option of a design": (
        ["designs=[{name='hc', steams=2}]"],
        ["'steams'", "did you mean 'streams'?"],
    ),
    "repeated design": (["designs=['hc','hc']"], ["'hc' is named twice: name each variant once"]),
    "no designs": (["designs=[]"], ["designs = []", "at least 1 item"]),
    "misspelt key": (["train.tokenz=5"], ["'train.tokenz'", "did you mean 'tokens'?"]),
    "misspelt table": (["trian.tokens=5"], ["'trian'", "did you mean 'train'?"]),
    "text for a number": (["train.tokens=many"], ["train.tokens = 'many'", "valid integer"]),
    "quoted number": (["train.tokens='5'"], ["train.tokens = '5'", "without quotes"]),
    "fraction of a token": (["train.tokens=2.5"], ["train.tokens = 2.5", "valid integer"]),
    "no equals sign": (["train.tokens"], ["'train.tokens' is no key=value", "train.sequences=8"]),
    "key of no table": (["designs.0=hc"], ["'designs' is no table of settings", "key=[...]"]),
    "negative width": (
        ["shapes.sizes=[{layers=1, width=-16, heads=2, ffn=24}]"],
        ["width = -16", "greater than or equal to 2"],
    ),
    "heads that do not divide": (
        ["shapes.sizes=[{layers=1, width=16, heads=3, ffn=24}]"],
        ["width 16 is not divisible by heads 3", "multiple of 6"],
    ),
    "impossible budget": (
        ["shapes={params='1k', depths=[2]}"],
        ["params = 1,000", "no shape of 2 layers", "Ask for "],
    ),
    "budget in no unit": (
        ["shapes={params='12 apples', depths=[2]}"],
        ["'12 apples' is no positive count", "400M"],
    ),
    "depths empty": (
        ["shapes={params='50k', depths=[]}"],
        ["needs either depths or aspect_ratios"],
    ),
    "budget and family": (["shapes.family='400m'"], ["exactly one of params, family and sizes"]),
    "unknown family": (["shapes={family='401m'}"], ["'401m'", "did you mean '400m'?"]),
    "learning rate 0": (
        ["search.learning_rates=[0.0]"],
        ["learning_rates.0 = 0.0", "greater than 0"],
    ),
    "learning rate below 0": (["search.learning_rates=[-1e-3]"], ["= -0.001", "greater than 0"]),
    "learning rate no number": (["search.learning_rates=[nan]"], ["= nan", "finite number"]),
    "learning rate repeated": (
        ["search.learning_rates=[1e-3, 1e-3]"],
        ["named twice: name each once"],
    ),
    "depth of the search": (["search.layers=7"], ["search.layers = 7 is no depth", ": 1, 2."]),
    "no seeds": (["seeds=[]"], ["seeds = []", "at least 1 item"]),
    "seed twice": (["seeds=[1,1]"], ["seeds = [1, 1] repeats a seed"]),
    "unknown device": (["train.device=gpu"], ["unknown device 'gpu'", "auto, cpu, cuda"]),
    "shape twice": (
        ["shapes.sizes=[{layers=1,width=16,heads=2,ffn=24},{layers=1,width=16,heads=2,ffn=24}]"],
        ["1 layers of width 16 are named twice", "once"],
    ),
    "one design, no list": (["designs='hc'"], ["designs = 'hc'", "a list is needed here"]),
    "path of nothing": (["data.paths=['']"], ["paths: '' names nothing", "folder is ."]),
    "home of nobody": (["data.paths=['~no body/x.txt']"], ["no file or folder ~no body/x.txt"]),
    "no regular file": (["data.paths=['/dev/null']"], ["/dev/null is no regular file"]),
    "tokenizer of nobody": (["data.tokenizer=~no body/x"], ["'~no body/x' cannot be read"]),
    "NUL in a path": (['data.tokenizer="a\\u0000b"'], ["cannot be read", "null byte"]),
    "unknown dtype": (["train.dtype=float16"], ["train.dtype = 'float16'", "'bfloat16'"]),
    "more evaluations than steps": (
        ["train.evaluations=9"],
        ["evaluations = 9", "steps (8)", "fewer evaluations or more tokens"],
    ),
    "validation below one sequence": (
        ["train.validation_tokens=8"],
        ["validation tokens = 8", "at least 16"],
    ),
    "sequence longer than the text": (
        ["train.length=30000", "train.validation_tokens=30000", "train.tokens=300000"],
        ["domain 'words' has", "Give more text, shorter sequences"],
    ),
    "unknown tokenizer": (["data.tokenizer=byte"], ["tokenizer = 'byte'", "did you mean 'bytes'?"]),
    "vocabulary that the text cannot fill": (
        ["data.tokenizer=bpe", "data.vocab=50000"],
        ["vocab = 50000", "Set vocab to"],
    ),
    "domain beside own text": (["data.domains=['code']"], ["remove one of the two"]),
    "unknown backbone": (["backbone=mou"], ["unknown backbone 'mou'", "did you mean 'moe'?"]),
    "unknown setting of a backbone": (
        ["backbone.name=moe", "backbone.expert=4"],
        ["backbone 'moe': unknown key 'expert'", "did you mean 'experts'?"],
    ),
    "setting of another backbone": (
        ["backbone.experts=4"],
        ["backbone 'dense': unknown key 'experts'", "Allowed: depth_scaled_init"],
    ),
    "design that a backbone cannot have": (
        ["backbone.name=hybrid", "designs=['moda']"],
        ["design 'moda' on backbone 'hybrid'", 'Set backbone.name = "dense"'],
    ),
    "more cores than there are": (
        ["resources.cpus=4096"],
        ["a trial needs 4096 cores", "Lower resources.cpus"],
    ),
    "resources misspelt": (["resources.gpu=1"], ["'resources.gpu'", "did you mean 'gpus'?"]),
    "name that is a path": (["name='../x'"], ["name = '../x'", "pattern"]),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_settings_that_cannot_be(refused: Run, study: Path, case: str) -> None:
    overrides, words = SETTINGS[case]
    line = refused("run", str(study), *overrides)
    assert [word for word in words if word not in line] == [], line


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("gone.txt", None, ["no file or folder", "Name a text"]),
        ("empty.txt", b"  \n", ["empty.txt is empty. Name a file with text"]),
        ("binary.txt", b"text\0text", ["is binary (NUL at byte 4)", "save text as UTF-8"]),
        ("short.txt", b"a few bytes of text only", ["domain 'short'", "Give more text"]),
        ("picture.png", b"\x89PNG", ["'.png' is no text format", "Allowed: text files"]),
        ("x.jsonl", b'{"text": "a"}\n{"text": \n', ["line 2 is no valid JSON", "Mend or remove"]),
        ("x.jsonl", b'{"txt": "a"}\n', ["line 1 has no field 'text'", "did you mean 'txt'?"]),
        ("x.jsonl", b'["a"]\n', ["line 1 is no JSON object"]),
        ("x.parquet", b"no parquet", ["is no readable Parquet file"]),
    ],
)
def test_data_that_cannot_be_used(
    refused: Run, study: Path, tmp_path: Path, name: str, content: bytes | None, words: list[str]
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    line = refused("run", str(study), "--data", str(path))
    assert [word for word in [path.stem, *words] if word not in line] == [], line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["runn"], ["'runn'", "did you mean", "'run'"]),
        (["run"], ["Missing argument 'study'", "See depthbench --help"]),
        (["run", "x.toml", "--wokers", "2"], ["--wokers", "--workers"]),
        (["run", "demo", "--workers", "two"], ["--workers", "integer"]),
        (["run", "demo", "--workers", "0"], ["--workers", "greater than or equal to 1"]),
        (["run", "demo", "--seed", "-1"], ["--seed", "greater than or equal to 0"]),
        (["run", "demo", "--device", "tpu"], ["unknown device 'tpu'", "auto, cpu, cuda"]),
        (["run", "demo", "--dtype", "half"], ["train.dtype = 'half'", "'float32'"]),
        (["run", "demo", "--engine", "rai"], ["engine 'rai', did you mean 'ray'?", "local, ray"]),
        (
            ["run", "demo", "--ray-address", "10.0.0.1:6379"],
            ["--ray-address 10.0.0.1:6379", "the engine is 'local'", "Add --engine ray"],
        ),
        (
            ["demo", "--engine", "ray", "--ray-address", "ray://10.0.0.1:10001"],
            ["--ray-address ray://10.0.0.1:10001", "such as 10.0.0.1:6379"],
        ),
        (
            ["demo", "--engine", "ray", "--ray-address", "127.0.0.1:1"],
            ["127.0.0.1:1 cannot be reached", "Connection refused", "Check the address"],
        ),
        (["run", "dmeo"], ["no study file 'dmeo'", "did you mean 'demo'?", "demo, pocket"]),
        (["run", "gone.toml"], ["gone.toml: no such file"]),
        (["run", "."], ["is a folder. Name the .toml file"]),
        (["report", "gone"], ["gone: no such folder"]),
        (["designs", "hcc"], ["unknown design 'hcc', did you mean 'hc'?"]),
        (["shapes"], ["--params and --family are both missing"]),
        (["shapes", "--params", "1M"], ["give either depths or aspect_ratios"]),
        (["shapes", "--params", "1M", "--depths", "2,x"], ["'x' is no whole number", "2,4,8,16"]),
        (["shapes", "--params", "1M", "--depths", "0"], ["depths.0 = 0"]),
        (
            ["shapes", "--params", "1M", "--depths", "2", "--aspect-ratios", "9"],
            ["either depths or aspect_ratios: both are given"],
        ),
        (["shapes", "--family", "400m", "--params", "1M"], ["--params", "leave one of the two"]),
        (["shapes", "--family", "400"], ["unknown family '400'", "did you mean '400m'?"]),
        (
            ["shapes", "--params", "1M", "--depths", "2", "--heads", "4", "--head-dim", "8"],
            ["heads = 4 and head_dim = 8 are both given"],
        ),
        (["shapes", "--params", "-5", "--depths", "2"], ["--params = '-5' is no positive count"]),
        (["shapes", "--params", "1M", "--depths", "2", "--design", "mch"], ["mean 'mhc'?"]),
    ],
    ids=" ".join,
)
def test_command_lines_that_cannot_be(refused: Run, arguments: list[str], words: list[str]) -> None:
    line = refused(*arguments)
    assert [word for word in words if word not in line] == [], line


def test_an_engine_that_is_not_installed(
    refused: Run, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert refused("run", str(study), "--engine", "ray") == (
        "depthbench: --engine ray: Ray is not installed. Install it with "
        "pip install 'depthbench[ray]'"
    )


def test_a_broken_study_file_names_the_line(refused: Run, tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text('name = "x"\n[train\n')
    assert "is no valid TOML: " in (line := refused("run", "broken.toml"))
    assert "line 2" in line
    (tmp_path / "latin.toml").write_bytes(b'name = "caf\xe9"\n')
    assert "is no UTF-8 text" in refused("run", "latin.toml")


def test_a_report_of_no_study(refused: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    line = refused("report", "empty")
    assert line.startswith("depthbench: empty is no study folder: it has no study.toml. Name the")
    assert "file is a file. Name the folder of the study" in refused("report", "file")


def test_a_blocked_output_folder(refused: Run, study: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    line = refused("run", str(study), "--out", str(tmp_path / "file"))
    assert f"cannot create the folder {tmp_path / 'file' / 'small'}: Not a directory" in line
    assert "Name another folder" in line
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_blocked_cache(
    refused: Run, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(tmp_path / "file"))
    assert f"cannot create the folder {tmp_path / 'file'}" in refused("run", str(study))
