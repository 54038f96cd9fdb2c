"""The tests can fail: each altered equation, and each altered law, makes its test file fail.

A mutant is a copy of the package with one piece of source text replaced; its tests run in a
process of their own that imports the copy.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import depthbench
from tests.contract.mutant import Mutant
from tests.contract.mutants_backbones import BACKBONES
from tests.contract.mutants_classic import CLASSIC
from tests.contract.mutants_depth import DEPTH
from tests.contract.mutants_health import HEALTH
from tests.contract.mutants_parametrization import PARAMETRIZATION
from tests.contract.mutants_probes import PROBES
from tests.contract.mutants_redundancy import REDUNDANCY
from tests.contract.mutants_speed import SPEED
from tests.contract.mutants_state import STATE
from tests.contract.mutants_streams import STREAMS
from tests.contract.mutants_train import TRAIN

ROOT = Path(__file__).parents[2]
PACKAGE = Path(depthbench.__file__).parent

QUICK = [
    Mutant(
        "hc: A transposed",
        "designs/hc.py",
        "mix=mix, write=write)",
        "mix=mix.mT, write=write)",
        "designs/test_hc.py",
    ),
    Mutant(
        "deepnorm: alpha on the branch",
        "designs/deepnorm.py",
        "self.alpha * state + y",
        "state + self.alpha * y",
        "designs/test_deepnorm.py",
    ),
    Mutant(
        "lns: no 1/sqrt(b+1)",
        "designs/lns.py",
        "self.norm(state) * self.factor",
        "self.norm(state)",
        "designs/test_lns.py",
    ),
    Mutant(
        "hc: A left out",
        "designs/hc.py",
        "mix=mix, write=write)",
        "mix=None, write=write)",
        "designs/test_hc.py",
    ),
]

SLOW = [
    Mutant(
        "sandwich: no outer norm",
        "designs/sandwich.py",
        "state + self.norm_out(y)",
        "state + y",
        "designs/test_sandwich.py",
    ),
    Mutant(
        "lns: factor of the site",
        "designs/lns.py",
        "(site.block + 1)",
        "(site.number + 1)",
        "designs/test_lns.py",
    ),
    Mutant(
        "deepnorm: alpha of L",
        "designs/deepnorm.py",
        "(2 * self.shape.layers) ** 0.25",
        "self.shape.layers**0.25",
        "designs/test_deepnorm.py",
    ),
    Mutant(
        "deepnorm: queries scaled too",
        "designs/deepnorm.py",
        '1.0 if role == "qk" else (8',
        "(8",
        "designs/test_deepnorm.py",
    ),
    Mutant(
        "deepnorm: layernorm is rmsnorm",
        "designs/deepnorm.py",
        '"layernorm": LayerNorm}',
        '"layernorm": RMSNorm}',
        "designs/test_deepnorm.py",
    ),
    Mutant(
        "keel: alpha 2L in block 0",
        "designs/keel.py",
        "1.0 if site.block == 0 else 2.0",
        "2.0",
        "designs/test_keel.py",
    ),
    Mutant(
        "keel: alpha 1 for attention of block 0 only",
        "designs/keel.py",
        "if site.block == 0 else",
        "if site.number == 0 else",
        "designs/test_keel.py",
    ),
    Mutant(
        "keel: post-norm at site 0",
        "designs/keel.py",
        "nn.Identity() if site.number == 0 else ",
        "",
        "designs/test_keel.py",
    ),
    Mutant(
        "streams: sum read out",
        "designs/streams.py",
        "return state.mean(2)",
        "return state.sum(2)",
        "designs/test_hc.py",
    ),
    Mutant(
        "hc: no tanh",
        "designs/hc.py",
        "torch.tanh(nn.functional.linear(normed, self.dynamic))",
        "nn.functional.linear(normed, self.dynamic)",
        "designs/test_hc.py",
    ),
    Mutant(
        "mhc: write with one sigmoid",
        "designs/manifold.py",
        "write=2 * torch.sigmoid",
        "write=torch.sigmoid",
        "designs/test_mhc.py",
    ),
    Mutant(
        "mhc: fewer rounds",
        "designs/sinkhorn.py",
        "range(rounds)",
        "range(rounds // 2)",
        "designs/test_sinkhorn.py",
    ),
    Mutant(
        "mhc: rounds not passed on",
        "designs/mhc.py",
        "rounds=self.config.rounds",
        "rounds=3",
        "designs/test_mhc.py",
    ),
    Mutant(
        "mhc: A transposed",
        "designs/stream_connection.py",
        "mix_and_write(state, route.mix, y",
        "mix_and_write(state, route.mix.mT, y",
        "designs/test_mhc.py",
    ),
    Mutant(
        "sinkhorn: columns first",
        "designs/sinkhorn.py",
        "log = log - torch.logsumexp(log, dim=-1, keepdim=True)\n",
        "log = log.mT - torch.logsumexp(log.mT, dim=-1, keepdim=True)\n",
        "designs/test_sinkhorn.py",
    ),
    Mutant(
        "attnres: gain left out of the queries",
        "designs/attnres.py",
        "self.query * self.gain",
        "self.query",
        "designs/test_attnres.py",
    ),
    Mutant(
        "attnres: sources not normed",
        "designs/sources.py",
        "nn.functional.linear(source, queries) * scale",
        "nn.functional.linear(source, queries)",
        "designs/test_attnres.py",
    ),
    Mutant(
        "attnres: branch reads the mix without norm",
        "designs/attnres.py",
        "return self.norm(mixed), route",
        "return mixed, route",
        "designs/test_attnres.py",
    ),
    Mutant(
        "attnres: mix belongs to the site it stands before",
        "designs/attnres.py",
        "mix=self.number",
        "mix=state.position",
        "designs/test_attnres.py",
    ),
    Mutant(
        "block_attnres: S rounded down",
        "designs/block_attnres.py",
        "math.ceil(self.shape.sites / self.config.blocks)",
        "max(1, self.shape.sites // self.config.blocks)",
        "designs/test_block_attnres.py",
    ),
    Mutant(
        "block_attnres: a skip shifts the runs",
        "designs/attnres.py",
        "return state.at(2 * place)",
        "return state",
        "designs/test_block_attnres.py",
    ),
    Mutant(
        "moda: query before its rotation",
        "nn/attention.py",
        "if depth.rotated else query",
        "if not depth.rotated else query",
        "designs/test_moda.py",
    ),
    Mutant(
        "moda: feed-forward stores nothing",
        "designs/moda.py",
        "entries=(*state.entries, route.stored)",
        "entries=state.entries",
        "designs/test_moda.py",
    ),
    Mutant(
        "moda: keys stored after rotation",
        "nn/attention.py",
        "Entry(query_key[:, :, self.heads :], value)",
        "Entry(key, value)",
        "designs/test_moda.py",
    ),
    Mutant(
        "moda: depth keys of the wrong heads",
        "nn/attention.py",
        "depth_query.unflatten(2, (-1, groups))",
        "depth_query.unflatten(2, (groups, -1)).transpose(2, 3)",
        "designs/test_moda.py",
    ),
    Mutant(
        "rope: other direction",
        "nn/rope.py",
        "exponents = torch.arange",
        "exponents = -torch.arange",
        "designs/test_prenorm.py",
    ),
    Mutant(
        "rope: angles negative",
        "nn/rope.py",
        "angles.sin()",
        "-angles.sin()",
        "nn/test_rope.py",
    ),
    Mutant(
        "attention: not causal",
        "nn/attention.py",
        "causal = mask is None",
        "causal = False",
        "designs/test_prenorm.py",
    ),
    Mutant(
        "attention over depth: not causal",
        "nn/attention.py",
        'scores.masked_fill(~mask.unsqueeze(-3), float("-inf"))',
        "scores",
        "designs/test_moda.py",
    ),
    Mutant(
        "attention: values of the wrong heads",
        "nn/attention.py",
        "enable_gqa=self.heads != self.kv_heads",
        "enable_gqa=False",
        "designs/test_prenorm.py",
    ),
    Mutant(
        "feed-forward: gate and up exchanged",
        "nn/fast_swiglu.py",
        "return functional.silu(gate) * up",
        "return functional.silu(up) * gate",
        "designs/test_prenorm.py",
    ),
    Mutant(
        "checkpointing bypassed",
        "nn/block.py",
        "            if trace is None:",
        "            if trace is not None:",
        "contract/test_checkpointing.py",
    ),
    Mutant(
        "seed not used",
        "nn/parameters.py",
        "manual_seed(seed_of(seed, ",
        "manual_seed(seed_of(0, ",
        "contract/test_start.py",
    ),
    Mutant(
        "attnres: queries start at 1",
        "designs/attnres.py",
        "zeros(decay=False, over_width=True)",
        "constant(1.0)",
        "contract/test_start.py",
    ),
    Mutant(
        "fast functions under autocast",
        "nn/kernels.py",
        "if torch.is_autocast_enabled(kind) else",
        "if not torch.is_autocast_enabled(kind) else",
        "contract/test_precision.py",
    ),
    Mutant(
        "what a tap returns is dropped",
        "nn/block.py",
        "y = tap(2 * block.number + side, x, y)",
        "tap(2 * block.number + side, x, y)",
        "contract/test_function.py",
    ),
    Mutant(
        "program counted, not followed",
        "nn/model.py",
        "else self._checked(program)",
        "else range(len(self._checked(program)))",
        "contract/test_function.py",
    ),
    Mutant(
        "attnres: a source's gradient lost on the way",
        "designs/fast_sources.py",
        "slot[part].addcmul_(here, column[part])",
        "slot[part].copy_(here * column[part])",
        "nn/test_functions.py",
    ),
    *CLASSIC,
    *DEPTH,
    *BACKBONES,
    *STREAMS,
    *PARAMETRIZATION,
    *STATE,
    *TRAIN,
    *SPEED,
    *PROBES,
    *REDUNDANCY,
    *HEALTH,
]


def failing(tests: list[str], source: Path) -> set[str]:
    """The test files, of these, in which a test fails when the package comes from ``source``."""
    command = [sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", "--tb=no"]
    result = subprocess.run(
        [*command, *(f"tests/{file}" for file in tests)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode in (0, 1), result.stdout + result.stderr
    return {file for file in tests if f"FAILED tests/{file}::" in result.stdout}


def assert_killed(mutants: list[Mutant], folder: Path) -> None:
    """Every mutant of one copy makes its own test file fail."""
    copy = folder / "depthbench"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for mutant in mutants:
        path = copy / mutant.file
        text = path.read_text(encoding="utf-8")
        assert text.count(mutant.old) == 1, f"{mutant.name}: adapt the mutant to {mutant.file}"
        path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    seen = failing([mutant.tests for mutant in mutants], folder)
    assert [mutant.name for mutant in mutants if mutant.tests not in seen] == []


@pytest.mark.parametrize(
    "mutants", [QUICK[:3], pytest.param(QUICK[3:], marks=pytest.mark.slow)], ids=["first", "second"]
)
def test_altered_equations_fail(mutants: list[Mutant], tmp_path: Path) -> None:
    """Several in one copy: none of them is in a file that another one's tests use."""
    assert_killed(mutants, tmp_path)


def test_every_alteration_finds_its_text() -> None:
    """So a moved line is seen at once, not when the slow tests run."""
    stale = [
        mutant.name
        for mutant in QUICK + SLOW
        if (PACKAGE / mutant.file).read_text(encoding="utf-8").count(mutant.old) != 1
    ]
    assert stale == []


@pytest.mark.slow
@pytest.mark.parametrize("mutant", SLOW, ids=lambda mutant: mutant.name)
def test_any_altered_equation_fails(mutant: Mutant, tmp_path: Path) -> None:
    assert_killed([mutant], tmp_path)


@pytest.mark.slow
def test_unaltered_copy_passes(tmp_path: Path) -> None:
    """Else the mutants would prove nothing."""
    shutil.copytree(PACKAGE, tmp_path / "depthbench")
    files = sorted({mutant.tests for mutant in QUICK + SLOW})
    assert failing(files, tmp_path) == set()
