"""The default corpus: text that every installation has, read without importing any package.

- ``code``: the ``.py`` files of the Python standard library,
- ``math``: docstrings over 200 characters of sympy,
- ``prose``: ``pydoc_data.topics`` and docstrings over 200 characters of numpy, torch and other
  packages that depthbench or torch depends on.
"""

import ast
import gc
import importlib.util
import platform
import sysconfig
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from depthbench.data.sources import Document, Source, UnreadableFile
from depthbench.errors import DepthbenchError

MATH_PACKAGES = ("sympy",)
PROSE_PACKAGES = ("jinja2", "matplotlib", "networkx", "numpy", "pydantic", "rich", "torch")
SHORTEST_DOCSTRING = 201
TESTS = {"test", "tests", "testing", "idle_test"}
# pydoc_data belongs to `prose`
CODE_LEFT_OUT = TESTS | {"site-packages", "dist-packages", "__pycache__", "pydoc_data"}
# compilers, exporters and copies of older versions: little text for the time they take to parse
DOCS_LEFT_OUT = TESTS | {
    *("_inductor", "_dynamo", "_functorch", "_vendor", "_native", "_export", "_refs", "_decomp"),
    *("_higher_order_ops", "_subclasses", "onnx", "ao", "fx", "sparse", "export", "jit"),
    *("distutils", "f2py", "v1", "backends"),
}


def fingerprint(domains: tuple[str, ...]) -> dict[str, str]:
    """Version of Python and of each package whose text ``domains`` use."""
    packages: tuple[str, ...] = ()
    if "math" in domains:
        packages += MATH_PACKAGES
    if "prose" in domains:
        packages += PROSE_PACKAGES
    found = {"python": f"{platform.python_implementation()} {platform.python_version()}"}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def sources(domain: str) -> list[Source]:
    """The files of ``code``, ``math`` or ``prose``.

    Raises `DepthbenchError` if this installation has none of them.
    """
    if domain == "code":
        found = list(_code())
        remedy = "this Python has no .py files"
    elif domain == "math":
        found = [source for package in MATH_PACKAGES for source in _docstrings(package)]
        remedy = f"install {', '.join(MATH_PACKAGES)}"
    else:
        found = [Source("pydoc_data.topics", _topics)]
        found += [source for package in PROSE_PACKAGES for source in _docstrings(package)]
        remedy = "this Python has no pydoc_data"
    if not found:
        raise DepthbenchError(
            f"no text for domain '{domain}': {remedy}, leave the domain out, or name text of "
            "your own with paths"
        )
    return found


def _code() -> Iterator[Source]:
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        # _sysconfigdata and config-* are written for one machine when Python is built
        machine_made = relative.parts[0].startswith(("_sysconfigdata", "config-"))
        if not machine_made and CODE_LEFT_OUT.isdisjoint(relative.parts):
            yield Source(relative.as_posix(), partial(_file, relative.as_posix(), path), True)


def _file(name: str, path: Path) -> list[Document]:
    data = _read(path)
    return [Document(name, data)] if data.strip() else []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror or error}") from None


def _topics() -> Iterator[Document]:
    found = importlib.util.find_spec("pydoc_data.topics")
    if found is None or found.origin is None:
        raise UnreadableFile("pydoc_data.topics is not part of this Python")
    for node in ast.parse(_read(Path(found.origin))).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            for topic, text in ast.literal_eval(node.value).items():
                yield Document(f"pydoc_data.topics:{topic}", text.encode())


def _docstrings(package: str) -> Iterator[Source]:
    found = importlib.util.find_spec(package)
    for folder in (found.submodule_search_locations or []) if found else []:
        root = Path(folder)
        for path in sorted(root.rglob("*.py")):
            relative = path.relative_to(root)
            if DOCS_LEFT_OUT.isdisjoint(relative.parts):
                module = ".".join((package, *relative.with_suffix("").parts))
                module = module.removesuffix(".__init__")
                yield Source(module, partial(_docstrings_of, module, path), True)


def _docstrings_of(module: str, path: Path) -> Iterator[Document]:
    source = _read(path)
    if b'"""' not in source and b"'''" not in source:
        return
    try:
        with warnings.catch_warnings():
            # other people's code: invalid escapes in it are no concern of the user
            warnings.simplefilter("ignore", SyntaxWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            with _no_collection():
                tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise UnreadableFile(f"{path} is no Python that this version reads: {error}") from None
    for qualified, text in _walk(tree, ""):
        if len(text) >= SHORTEST_DOCSTRING:
            yield Document(f"{module}:{qualified}", text.encode("utf-8", "surrogatepass"))


@contextmanager
def _no_collection() -> Iterator[None]:
    """Parsing makes many objects and no garbage: a fifth of its time is looking for some."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _walk(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, prefix: str
) -> Iterator[tuple[str, str]]:
    text = ast.get_docstring(node)
    if text:
        yield prefix, text
    for child in node.body:
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _walk(child, f"{prefix}.{child.name}" if prefix else child.name)
