"""The server of a live page: who gets in, what is answered, and that no client keeps it."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.federations import make_federation
from tests.support.served_page import SECRET, WITHIN_S, Served, serving_page
from veilsum.roles.federation.folder import LoadedFederation
from veilsum.roles.pages import live, serving
from veilsum.roles.pages.run_page import PARTS


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedFederation:
    return make_federation(tmp_path_factory.mktemp("served") / "fed", "masked", 3)


@pytest.fixture
def served(loaded: LoadedFederation, tmp_path: Path) -> Iterator[Served]:
    with serving_page(loaded, tmp_path) as one:
        yield one


def test_only_who_names_the_loopback_and_knows_the_path_gets_in(served: Served) -> None:
    for host in (None, "127.0.0.1", f"localhost:{served.port}"):
        assert served.ask(host=host)[0] == 200
    for host in ("evil.example", f"evil.example:{served.port}", "127.0.0.1.evil.example", "[::1]", ""):
        status, _, body = served.ask(host=host)
        assert status == 400
        assert b"server" not in body
    for path in ("/", "/another/", f"/{SECRET}", f"/{SECRET}/../", "/events", f"/{SECRET}/run.html"):
        assert served.ask(path)[0] in (307, 404)


def test_nothing_can_be_changed(served: Served) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert served.ask(method=method)[0] == 405


def test_a_browser_may_run_the_page_s_own_script_and_ask_nobody_else(served: Served) -> None:
    _, headers, body = served.ask()
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert b' style="' not in body
    assert served.ask(f"/{SECRET}/script.js")[1]["content-type"].startswith("text/javascript")


def test_a_stream_brings_all_parts_and_then_what_changes(served: Served) -> None:
    with served.stream() as changes:
        assert set(next(changes)) == set(PARTS)
        served.run.commit(1)
        changed = next(one for one in changes if "rounds" in one)
    assert "all 3" in changed["rounds"]


def test_streams_have_a_number_and_a_closed_one_makes_room(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MOST_STREAMS", 3)
    monkeypatch.setattr(live, "STILL_HERE_S", 0.1)
    with contextlib.ExitStack() as open_streams:
        for _ in range(3):
            next(open_streams.enter_context(served.stream()))
        assert served.ask(f"/{SECRET}/events")[0] == 503
        assert served.ask()[0] == 200
    give_up_at = time.monotonic() + WITHIN_S
    while served.page.streams and time.monotonic() < give_up_at:
        time.sleep(0.05)
    with served.stream() as changes:
        assert next(changes)


def test_who_connects_and_says_nothing_is_hung_up_on(
    loaded: LoadedFederation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "REQUEST_WITHIN_S", 0.2)
    with serving_page(loaded, tmp_path) as served, served.connect() as silent, served.connect() as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: 127.0")
        for one in (silent, slow):
            with contextlib.suppress(ConnectionResetError):
                assert one.recv(1) == b""


def test_who_only_connects_loses_its_place_to_who_comes_later_and_keeps_nobody_out(
    loaded: LoadedFederation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "REQUEST_WITHIN_S", 10 * WITHIN_S)
    monkeypatch.setattr(serving, "MOST_CONNECTIONS", 8)
    with serving_page(loaded, tmp_path) as served, contextlib.ExitStack() as held, served.stream() as changes:
        assert set(next(changes)) == set(PARTS)
        idle = [held.enter_context(served.connect()) for _ in range(40)]
        for one in idle[:-7]:
            with contextlib.suppress(ConnectionResetError):
                assert one.recv(1) == b""
        for one in idle[-7:]:
            one.setblocking(False)
            with pytest.raises(BlockingIOError):
                one.recv(1)
        assert served.ask()[0] == 200
        served.run.commit(1)
        assert any("rounds" in one for one in changes)


def test_where_all_have_asked_a_new_connection_is_closed(
    loaded: LoadedFederation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "MOST_CONNECTIONS", 2)
    with serving_page(loaded, tmp_path) as served, served.stream() as one, served.stream() as another:
        assert next(one)
        assert next(another)
        with served.connect() as third, contextlib.suppress(ConnectionResetError):
            assert third.recv(1) == b""
        served.run.commit(1)
        for changes in (one, another):
            assert any("rounds" in change for change in changes)


@pytest.mark.parametrize(
    "first",
    [
        "GET /unknown HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        f"GET /{SECRET}/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "POST /unknown HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9999\r\n\r\n",
    ],
)
def test_no_connection_outlives_its_answer(served: Served, first: str) -> None:
    """Who is answered, be it with a refusal, and begins another request, would keep a place for ever."""
    with served.connect() as one:
        one.sendall(first.encode())
        with contextlib.suppress(ConnectionResetError):
            while one.recv(1 << 16):
                pass


def test_who_takes_nothing_in_is_hung_up_on_and_keeps_nobody_waiting(
    loaded: LoadedFederation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "REQUEST_WITHIN_S", 0.2)
    monkeypatch.setattr(serving, "READ_WITHIN_S", 0.2)
    monkeypatch.setattr(live, "STILL_HERE_S", 0.01)
    large = dict.fromkeys(PARTS, "x" * (1 << 20))
    with serving_page(loaded, tmp_path) as served, served.connect() as deaf:

        async def never_the_same(known: dict[str, str], within_s: float) -> dict[str, str]:
            return large

        monkeypatch.setattr(served.page.follower, "next_parts", never_the_same)
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(f"GET /{SECRET}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        give_up_at = time.monotonic() + WITHIN_S
        began = False
        while time.monotonic() < give_up_at and not (began and not served.page.streams):
            began = began or served.page.streams > 0
            time.sleep(0.05)
        assert began
        assert served.page.streams == 0
        assert served.ask()[0] == 200


def test_open_streams_do_not_keep_the_server_from_ending(loaded: LoadedFederation, tmp_path: Path) -> None:
    with contextlib.ExitStack() as after:
        with serving_page(loaded, tmp_path) as served:
            changes = after.enter_context(served.stream())
            assert next(changes)
        assert [one for one in changes if not one] == []


def test_the_loopback_alone_is_listened_on() -> None:
    with serving.open_port(0) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_every_stopping_signal_ends_the_command_in_order(
    loaded: LoadedFederation, which: signal.Signals
) -> None:
    command = [sys.executable, "-P", "-m", "veilsum", "page", str(loaded.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        address = process.stdout.readline().strip()
        port = int(address.split(":")[2].split("/")[0])
        assert address.startswith(f"http://127.0.0.1:{port}/")
        assert len(address.rsplit("/", 2)[1]) >= 16
        process.send_signal(which)
        assert process.wait(WITHIN_S) == 0
        assert process.stderr.read() == ""
