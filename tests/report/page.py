"""A report page, taken apart for tests."""

import json
from html.parser import HTMLParser
from typing import Any


class Page(HTMLParser):
    """Scripts, visible text and every address of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.text: list[str] = []
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.tags: list[str] = []
        self.policy = ""
        self.payload: dict[str, Any] = {}
        self._inside = ""
        self._is_json = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(tag)
        self._inside = tag
        self._is_json = values.get("type") == "application/json"
        self.addresses += [v or "" for k, v in attrs if k in ("src", "href", "srcset", "data")]
        self.handlers += [k for k, _ in attrs if k.startswith("on")]
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = values["content"] or ""

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script" and self._is_json:
            self.payload = json.loads(data)
        elif self._inside == "script":
            self.scripts.append(data)
        elif self._inside != "style":
            self.text.append(data)

    @property
    def words(self) -> str:
        """Visible text with single spaces."""
        return " ".join(" ".join(self.text).split())
