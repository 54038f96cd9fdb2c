import ast
import importlib.util
import sys
import sysconfig
from pathlib import Path

import pytest

from depthbench.data import installed
from depthbench.data.config import DataConfig
from depthbench.data.dataset import prepare
from depthbench.data.sources import UnreadableFile


def test_a_small_cap_of_the_installed_corpus(tmp_path: Path) -> None:
    before = set(sys.modules)
    dataset = prepare(DataConfig(megabytes=0.1), tmp_path)
    assert not [name for name in set(sys.modules) - before if name.startswith("sympy")]
    assert [domain.name for domain in dataset.manifest.domains] == ["code", "math", "prose"]
    for domain in dataset.manifest.domains:
        assert domain.train_bytes + domain.validation_bytes == 100_000
        # a few files fill the cap of code: which, and so whether one is held out, is Python's own
        assert domain.split == "document" or domain.name == "code"
        assert 3.5 < domain.unigram_bits_per_byte < 6
    assert set(dataset.manifest.origin) >= {"python", "sympy", "torch"}


def test_code_is_the_standard_library_without_tests_and_without_prose() -> None:
    found = {source.name: source for source in installed.sources("code")}
    assert {"ast.py", "asyncio/base_events.py"} <= set(found)
    parts = {part for name in found for part in Path(name).parts}
    assert parts.isdisjoint({"test", "tests", "idle_test", "site-packages", "pydoc_data"})
    assert not [name for name in found if name.startswith(("_sysconfigdata", "config-"))]
    (document,) = found["ast.py"].read()
    assert document.data == (Path(sysconfig.get_paths()["stdlib"]) / "ast.py").read_bytes()


def test_math_is_docstrings_by_qualified_name() -> None:
    found = {source.name: source for source in installed.sources("math")}
    documents = {one.name: one.data.decode() for one in found["sympy.core.add"].read()}
    assert min(map(len, documents.values())) > 200
    spec = importlib.util.find_spec("sympy")
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse((Path(spec.origin).parent / "core" / "add.py").read_bytes())
    (add,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Add")
    assert documents["sympy.core.add:Add"] == ast.get_docstring(add)
    assert "sympy.core.add:Add.flatten" in documents
    assert "sympy" in found
    assert not [name for name in found if ".tests." in name]


def test_prose_has_topics_and_docstrings() -> None:
    found = {source.name: source for source in installed.sources("prose")}
    topics = {one.name for one in found["pydoc_data.topics"].read()}
    assert "pydoc_data.topics:assert" in topics
    assert {"torch.nn.modules.linear", "numpy", "networkx.classes.graph"} <= set(found)


def test_a_file_that_is_no_python_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('"""Docs."""\ndef (')
    with pytest.raises(UnreadableFile, match="is no Python that this version reads"):
        list(installed._docstrings_of("a", tmp_path / "a.py"))


def test_fingerprint_names_only_what_is_used() -> None:
    assert set(installed.fingerprint(("code",))) == {"python"}
    assert set(installed.fingerprint(("math",))) == {"python", "sympy"}
