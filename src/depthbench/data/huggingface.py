"""Datasets of Hugging Face, streamed: by name, or from a local folder of data files."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, final

from depthbench.config import digest_of
from depthbench.data.inputs import Drawn, Input
from depthbench.data.sources import Document, Source
from depthbench.data.tokenizer import HUB
from depthbench.errors import DepthbenchError, nearest

SPLIT = "train"


def library(what: str) -> Any:
    """The package ``datasets``, made quiet; raises `DepthbenchError` that ``what`` needs it."""
    try:
        import datasets
    except ImportError:
        raise DepthbenchError(
            f"{what} needs the package datasets, which is not installed. Run pip install "
            "'depthbench[data]', or name files of your own"
        ) from None
    import huggingface_hub

    datasets.utils.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    huggingface_hub.logging.set_verbosity_error()
    return datasets


@final
class Streamed(Input):
    """``hf:NAME[:SUBSET[:SPLIT]]``; rows come in the dataset's order."""

    def __init__(self, given: str, text_field: str) -> None:
        """Raises `DepthbenchError` if it cannot be found or has no such field."""
        parts = given.removeprefix(HUB).split(":")
        if not parts[0] or len(parts) > 3:
            raise DepthbenchError(
                f"paths: '{given}' is no dataset. Write hf:NAME, hf:NAME:SUBSET or "
                "hf:NAME:SUBSET:SPLIT, such as hf:HuggingFaceFW/fineweb-edu:sample-10BT"
            )
        self.given, self.field = given, text_field
        self.path, subset, split = [*parts, "", ""][:3]
        self.subset, self.split = subset or None, split or SPLIT
        self.name = self.path.rstrip("/").rpartition("/")[2] or "text"
        self.builder = self._found()
        self.origin = f"{given}, split {self.split}"

    def fingerprint(self) -> Any:
        files = self.builder.config.data_files or {}
        versions = {str(name): str(found.origin_metadata) for name, found in files.items()}
        return [self.given, self.builder.hash, digest_of(versions)]

    def units(self, size: int, first: int = 0, state: Any = None) -> Iterator[Drawn]:
        with self._said():
            rows = self._rows()
            if state is not None:
                rows.load_state_dict(state["rows"])
            number = state["number"] if state else 0
            documents: list[Document] = []
            held = 0
            for row in rows:
                number += 1
                text = row[self.field]
                if isinstance(text, str) and text.strip():
                    data = text.encode()
                    documents.append(Document(f"{self.name}:{number}", data))
                    held += len(data)
                if held >= size:
                    yield self._drawn(documents, held, number, rows)
                    documents, held = [], 0
            if documents:
                yield self._drawn(documents, held, number, rows)

    def _drawn(self, documents: list[Document], held: int, number: int, rows: Any) -> Drawn:
        name = f"{self.given} up to row {number}"
        source = Source(name, partial(tuple[Document, ...], documents))
        return Drawn((source,), held, {"rows": rows.state_dict(), "number": number})

    def _found(self) -> Any:
        datasets = library(f"paths: '{self.given}'")
        with self._said():
            return datasets.load_dataset_builder(self.path, self.subset)

    def _rows(self) -> Any:
        rows = self.builder.as_streaming_dataset(split=self.split)
        names = rows.column_names
        if names is None:
            names = sorted(next(iter(rows.take(1)), {}))
        if self.field not in names:
            raise DepthbenchError(
                f"paths: '{self.given}' has no field '{self.field}'"
                f"{nearest(self.field, names) or '.'} It has: {', '.join(names[:20]) or 'none'}. "
                "Set --text-field (text_field) to one of them"
            )
        return rows.select_columns([self.field])

    @contextmanager
    def _said(self) -> Iterator[None]:
        """What goes wrong inside the library becomes one line."""
        try:
            yield
        except DepthbenchError:
            raise
        # the library and its readers raise errors of many kinds
        except Exception as error:
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise DepthbenchError(
                f"paths: '{self.given}' cannot be read through datasets: {reason}. Check the "
                "name, subset, split and connection; the same command goes on where it stopped"
            ) from None
        finally:
            # its readers must end before the interpreter does
            gc.collect()
