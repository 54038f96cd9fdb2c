"""The live server: the same pages, only here, only reading."""

import http.client
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from depthbench.errors import DepthbenchError
from depthbench.serve.pages import Pages
from depthbench.serve.server import Server
from depthbench.study.store import Store
from tests.report.page import Page
from tests.report.synthetic import rich_rows, write_study


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    write_study(tmp_path / "runs" / "one", rich_rows()[:6])
    write_study(tmp_path / "runs" / "empty", [])
    (tmp_path / "secret.html").write_text("secret")
    return tmp_path / "runs"


@pytest.fixture
def server(runs: Path) -> Iterator[Server]:
    with Server(Pages(runs), 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(
    server: Server, path: str, method: str = "GET", host: str = "localhost"
) -> tuple[int, str, str]:
    """Status, policy of its content, and body."""
    line = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    line.request(method, path, headers={"Host": f"{host}:{server.server_port}"})
    answer = line.getresponse()
    found = answer.status, answer.getheader("Content-Type") or "", answer.read().decode()
    line.close()
    return found


def test_only_this_machine_is_served(server: Server) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert ask(server, "/", host="evil.example")[0] == 403
    assert ask(server, "/one/", host="evil.example")[0] == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_writes(server: Server, runs: Path, method: str) -> None:
    before = sorted(runs.rglob("*"))
    assert ask(server, "/one/", method)[0] == 405
    assert sorted(runs.rglob("*")) == before


def test_the_list_tells_how_far_each_study_is(server: Server) -> None:
    status, kind, body = ask(server, "/")
    assert (status, kind) == (200, "text/html; charset=utf-8")
    page = Page(body)
    assert "one 6 of 60" in page.words
    assert "empty 0 of 60" in page.words
    assert "one/" in page.addresses


def test_a_page_follows_its_study(server: Server, runs: Path) -> None:
    version = ask(server, "/one/version")[2]
    assert ask(server, "/one/version")[2] == version
    assert "5 of 60" in Page(ask(server, "/one/")[2]).words
    Store(runs / "one").add(rich_rows()[6])
    assert ask(server, "/one/version")[2] != version
    body = ask(server, "/one/report.html")[2]
    assert "6 of 60" in Page(body).words
    assert "connect-src 'self'" in Page(body).policy
    assert not (runs / "one" / "report.html").exists()
    assert "no trial has finished yet (0 of 60)" in ask(server, "/empty/")[2]


@pytest.mark.parametrize(
    "path",
    [
        "/two/",
        "/one/results.jsonl",
        "/one/study.toml",
        "/one/..%2f..%2fsecret.html",
        "/one/../../secret.html",
        "/one/%2e%2e/%2e%2e/secret.html",
        "/one/link.html",
    ],
)
def test_nothing_else_is_served(server: Server, runs: Path, path: str) -> None:
    (runs / "one" / "link.html").symlink_to(runs.parent / "secret.html")
    status, _, body = ask(server, path)
    assert status in (400, 404)
    assert "secret" not in body or "no study" in body
    assert body != "secret"


def test_pages_of_probes_are_served(server: Server, runs: Path) -> None:
    page = runs / "one" / "probes" / "report.html"
    page.parent.mkdir()
    page.write_text("probes")
    assert ask(server, "/one/probes/report.html") == (200, "text/html; charset=utf-8", "probes")
    assert ask(server, "/one/probes/report.html", "HEAD")[2] == ""


def test_one_study_alone(runs: Path) -> None:
    assert list(Pages(runs / "one").studies()) == ["one"]


def test_bad_places_are_refused(runs: Path, server: Server) -> None:
    with pytest.raises(DepthbenchError, match="no such folder"):
        Pages(runs / "none")
    with pytest.raises(DepthbenchError, match="cannot be used"):
        Server(Pages(runs), server.server_port)
