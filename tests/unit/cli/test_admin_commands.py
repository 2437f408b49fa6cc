"""`top` and `connections` with an admin port of canned answers: their output and their errors."""

from __future__ import annotations

import io
import json
import socket
from pathlib import Path

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from proxy.cli import app
from proxy.cli.top_frame import frame, sparkline
from proxy.cli.units import dollars, duration, milliseconds, rate, size
from proxy.console.admin_port import AdminPortError, admin_url
from tests.unit.cli.admin_double import CONNECTION, DOCUMENTS, admin_port


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.stdout, result.stderr


def test_connections_shows_clients_that_cross_and_the_remedy() -> None:
    with admin_port() as (url, server):
        code, out, _ = run("connections", "--admin", url, "--contains", "shop", "--limit", "7")
    assert code == 0
    # Names are shown literally: text that looks like rich's markup is not markup.
    assert "[red]shop[/red]" in out
    assert "4.5 MB" in out
    assert "2 of 5 connections; --contains TEXT narrows them down" in out
    assert "Clients of rack-b come to a proxy of rack-a" in out
    assert server.asked[0] == ("/api/connections", {"contains": ["shop"], "limit": ["7"]})


def test_only_connections_that_cross_as_json() -> None:
    with admin_port() as (url, _):
        code, out, _ = run("connections", "--admin", url, "--crossing", "--json")
    assert (code, json.loads(out)) == (0, {"total": 5, "connections": [CONNECTION]})


def test_top_without_a_terminal_draws_one_frame() -> None:
    with admin_port() as (url, _):
        code, out, _ = run("top", "--admin", url)
    assert code == 0
    for part in (
        *("rack-a/proxy:19092 in rack-a", "ready", "a shard is fenced", "1.2 MB/s", "12 ms", "▁█"),
        *("$0.05 between racks", "$0.25 for requests", "$1.50 saved", "$0.09 an hour between racks"),
        *("→ crosses", "2.5 GB", "[red]shop[/red]", "connection_refused", "raise limits.max_connections"),
        *("Servers of the store", "10.0.0.8:6379", "0-2, 7", "42%", "5.0 MB of 2.0 GB", "1.5 kB", "it is down"),
    ):
        assert part in out, part
    assert "\x1b" not in out


def test_top_as_json_is_one_document_a_line() -> None:
    with admin_port() as (url, _):
        code, out, _ = run("top", "--admin", url, "--once", "--json")
    (line,) = out.splitlines()
    document = json.loads(line)
    assert code == 0
    assert document["overview"] == DOCUMENTS["/api/overview"]
    assert len(document["history"]) == 1


def test_a_proxy_without_any_data_is_drawn_too() -> None:
    overview = DOCUMENTS["/api/overview"] | {
        "flows": [],
        "started_ms": None,
        "state": "not_ready",
        "reason": "starting",
    }
    document = {"overview": overview, "history": [], "connections": [], "errors": [], "nodes": []}
    drawn = io.StringIO()
    Console(file=drawn, width=100).print(frame(document, "http://x", failure="it is gone"))
    for part in ("not ready", "STALE: it is gone", "starting", "–"):
        assert part in drawn.getvalue()


def line_of(*arguments: str) -> str:
    code, out, err = run(*arguments)
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


def test_an_error_is_one_line_with_a_remedy(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"127.0.0.1:{nobody.getsockname()[1]}"
        assert "no proxy answers" in line_of("top", "--admin", url)
    with admin_port({}) as (url, _):
        assert "has no /api: a proxy of an older release" in line_of("connections", "--admin", url)
    with admin_port({"/api/connections": (503, {"error": "too many; ask less often"})}) as (url, _):
        assert "answers 503: too many; ask less often" in line_of("connections", "--admin", url)
    for nonsense in (b"<html>", b"[]", b"\xff"):
        with admin_port({"/api/connections": nonsense}) as (url, _):
            assert "is no admin port" in line_of("connections", "--admin", url)
    other = DOCUMENTS["/api/overview"] | {"flows": [{"kind": "classic"}]}
    empty = [{path: {}} for path in ("/api/history", "/api/overview", "/api/errors", "/api/nodes")]
    for documents in ({"/api/overview": other}, *empty):
        with admin_port(DOCUMENTS | documents) as (url, _):
            assert "as new as this command" in line_of("top", "--admin", url)
    for document in ({}, {"total": 1, "connections": [{"client": "x"}]}, {"total": 1, "connections": 7}):
        with admin_port({"/api/connections": document}) as (url, _):
            assert "as new as this command" in line_of("connections", "--admin", url)
    assert "leave out paths" in line_of("top", "--admin", "http://127.0.0.1:1/api")
    assert "give only one" in line_of("top", "--admin", "x", "--config", "y")
    assert "can't read" in line_of("top", "--config", str(tmp_path / "nothing.yaml"))


def test_a_port_for_kafka_is_distinguished_from_an_admin_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as kafka:

        def close_at_once() -> None:
            accepted, _ = kafka.accept()
            accepted.recv(100)
            accepted.close()

        import threading

        closing = threading.Thread(target=close_at_once)
        closing.start()
        assert "is no admin port" in line_of("connections", "--admin", f"127.0.0.1:{kafka.getsockname()[1]}")
        closing.join()


@pytest.mark.parametrize(
    ("host", "port", "expected"),
    [
        ("127.0.0.1", 19081, "http://127.0.0.1:19081"),
        ("0.0.0.0", 19081, "http://127.0.0.1:19081"),
        ("::", 19081, "http://[::1]:19081"),
        ("proxy.example", 80, "http://proxy.example:80"),
    ],
)
def test_the_settings_say_where_the_port_is(tmp_path: Path, host: str, port: int, expected: str) -> None:
    assert admin_url(None, settings_file(tmp_path, host, port)) == expected


def test_a_port_that_the_system_picks_has_to_be_named(tmp_path: Path) -> None:
    with pytest.raises(AdminPortError, match="--admin"):
        admin_url(None, settings_file(tmp_path, "127.0.0.1", 0))


def settings_file(directory: Path, host: str, port: int) -> Path:
    path = directory / "proxy.yaml"
    settings = {
        "rack": "rack-a",
        "admin": {"host": host, "port": port},
        "brokers": {"bootstrap": ["127.0.0.1:9092"]},
        "redis": {"url": "redis://127.0.0.1:6379"},
        "storage": {"url": "file:///nowhere"},
    }
    path.write_text(yaml.safe_dump(settings))
    return path


def test_numbers_are_for_people() -> None:
    assert [size(value) for value in (0, 999, 1000, 1_499_000, 999_960_000, 5 * 10**18, None)] == [
        *("0 B", "999 B", "1.0 kB", "1.5 MB", "1.0 GB", "5000.0 PB", "–")
    ]
    assert rate(2_000) == "2.0 kB/s"
    assert [milliseconds(value) for value in (0.42, 12.5, 9_999, 12_345, None)] == [
        *("0.4 ms", "12 ms", "9999 ms", "12.3 s", "–")
    ]
    assert [dollars(value) for value in (0, 0.00001, 0.0123, 0.1, 1234.5, None)] == [
        *("$0.00", "<$0.0001", "$0.012", "$0.10", "$1,234.50", "–")
    ]
    assert [duration(value) for value in (-5, 90_000, 150_000, 8_000_000, 200_000_000, None)] == [
        *("0 s", "90 s", "2 min", "2 h", "2 d", "–")
    ]
    assert sparkline([0, 5, 10, None]) == "▁▅█ "
    assert sparkline([0.0, None]) == "▁ "
    assert sparkline([]) == ""
