"""The live server: the same pages, only here, only reading."""

import http.client
import json
import logging
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from depthbench.errors import DepthbenchError
from depthbench.files import append_line
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
        f"/one/{'a' * 300}.html",
        "/one/ring.html",
        "http://[/",
    ],
)
def test_nothing_else_is_served(server: Server, runs: Path, path: str) -> None:
    (runs / "one" / "link.html").symlink_to(runs.parent / "secret.html")
    (runs / "one" / "ring.html").symlink_to(runs / "one" / "ring.html")
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


def place_of(server: Server, path: str) -> tuple[int, str | None]:
    line = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    line.request("GET", path, headers={"Host": "localhost"})
    answer = line.getresponse()
    line.close()
    return answer.status, answer.getheader("Location")


def test_a_study_has_the_address_of_a_folder(server: Server, runs: Path) -> None:
    """So that links of its page are of what lies in it; whatever its name."""
    assert place_of(server, "/one") == (302, "/one/")
    write_study(runs / "version", rich_rows()[:6])
    write_study(runs / "a%2f ü", rich_rows()[:6])
    assert "5 of 60" in Page(ask(server, "/version/")[2]).words
    assert ask(server, "/version/version")[2] == Pages(runs).version(runs / "version")
    assert ask(server, "/version")[1] == "text/plain; charset=utf-8"
    links = [one for one in Page(ask(server, "/")[2]).addresses if one != "empty/"]
    assert len(links) == 3
    for link in links:
        if link != "version/":
            assert place_of(server, f"/{link[:-1]}") == (302, f"/{link}")
        assert "5 of 60" in Page(ask(server, f"/{link}")[2]).words


def test_pages_say_what_they_were_made_from(server: Server) -> None:
    for path in ("/", "/one/", "/empty/", "/one/report.html"):
        version = ask(server, f"{path.removesuffix('report.html')}version")[2]
        assert f'<html lang="en" data-version="{version}">' in ask(server, path)[2]


def test_the_list_follows_trials_that_are_under_way(server: Server, runs: Path) -> None:
    trial = runs / "empty" / "trials" / "0123456789ab"
    trial.mkdir(parents=True)
    before = ask(server, "/version")[2]
    append_line(trial / "metrics.jsonl", {"step": 3, "tokens": 192, "train_loss": 5.25})
    after = ask(server, "/version")[2]
    assert "0123456789ab: step 3, training loss 5.250" in Page(ask(server, "/")[2]).words
    append_line(trial / "metrics.jsonl", {"step": 4, "tokens": 256, "train_loss": 5.25})
    assert len({before, after, ask(server, "/version")[2]}) == 3


def test_what_nobody_foresaw_is_a_page_and_one_line_of_the_log(
    server: Server, runs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = {
        path: path.read_text(encoding="utf-8")
        for path in (runs / "one" / "trials").glob("*/metrics.jsonl")
    }
    for path, text in good.items():
        records = [
            json.loads(line) | {"health": {"gradient_norm": 3}} for line in text.split("\n")[:-1]
        ]
        path.write_text("".join(f"{json.dumps(one)}\n" for one in records), encoding="utf-8")
    with caplog.at_level(logging.ERROR):
        status, _, body = ask(server, "/one/")
        assert ask(server, "/one/")[0] == 500
    assert status == 500
    assert (
        "This page cannot be made: TypeError: object of type 'int' has no len(). A file"
        in Page(body).words
    )
    version = ask(server, "/one/version")[2]
    # the page does not load itself again and again
    assert f'data-version="{version}"' in body
    [line] = caplog.messages
    assert line.startswith("the page 'one' cannot be made: TypeError: ")
    for path, text in good.items():
        path.write_text(text, encoding="utf-8")
    assert ask(server, "/one/")[0] == 200


def test_a_reader_that_goes_away_leaves_no_trace(
    server: Server, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    ask(server, "/one/")
    with caplog.at_level(logging.ERROR):
        for asked in (b"GET /one/ HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /one/ HT"):
            line = socket.create_connection(("127.0.0.1", server.server_port))
            # a reset instead of an orderly end
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            line.sendall(asked)
            time.sleep(0.05)
            line.close()
        time.sleep(0.3)
        assert ask(server, "/one/")[0] == 200
    assert capfd.readouterr().err == ""
    assert caplog.messages == []
