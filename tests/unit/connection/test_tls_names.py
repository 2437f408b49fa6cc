"""One TLS port for all brokers, on real sockets and both event loops: the name in the handshake selects the broker."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop
from structlog.testing import capture_logs

from proxy.config import Listeners, ListenerTls
from proxy.telemetry.unraisable import log_unraisable
from tests.unit.connection.test_tls_listener import HOST, REFUSED, Port, listening

DOMAIN = "rack-a.kafka.example.com"
BOOTSTRAP = f"bootstrap.{DOMAIN}"
Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[uvloop.run, asyncio.run], ids=["uvloop", "asyncio"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run on an event loop: the name reaches its handshake by the loop's contexts, so both loops are tried."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def ca(tmp_path: Path) -> trustme.CA:
    authority = trustme.CA()
    wildcard = authority.issue_cert(f"*.{DOMAIN}")
    wildcard.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "listener.pem"))
    return authority


@pytest.fixture
def listeners(tmp_path: Path) -> Listeners:
    tls = ListenerTls(certificate_file=str(tmp_path / "listener.pem"))
    return Listeners(advertised_host=BOOTSTRAP, sni_broker_host=f"broker-{{node_id}}.{DOMAIN}", tls=tls)


class Names:
    """Clients that verify the certificate, and keep the TLS session for the next connection."""

    def __init__(self, port: Port, ca: trustme.CA, *, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> None:
        self._port = port
        self._context = ssl.create_default_context()
        self._context.maximum_version = newest
        ca.configure_trust(self._context)
        self.session: ssl.SSLSession | None = None
        self.reused = False

    async def connect(self, name: str) -> None:
        """Raise OSError unless the connection works both ways."""
        await asyncio.to_thread(self._work, name)

    def _work(self, name: str) -> None:
        plain = socket.create_connection((HOST, self._port.port), timeout=30)
        with self._context.wrap_socket(plain, server_hostname=name, session=self.session) as client:
            client.sendall(b"there and back")
            received = client.recv(14)
            if received != b"there and back":
                raise ConnectionError("closed")
            self.session, self.reused = client.session, bool(client.session_reused)


def test_the_name_selects_the_broker(tmp_path: Path, ca: trustme.CA, listeners: Listeners, run: Run) -> None:
    async def scenario() -> None:
        async with listening(tmp_path, listeners=listeners) as port:
            names = Names(port, ca)
            for name in (BOOTSTRAP, f"broker-0.{DOMAIN}", f"Broker-12345.{DOMAIN.upper()}"):
                await names.connect(name)
            assert port.made_for == [None, 0, 12345]
            assert port.stats.tls_handshakes_failed == 0

    run(scenario())


def test_handshakes_at_the_same_time_keep_their_names(
    tmp_path: Path, ca: trustme.CA, listeners: Listeners, run: Run
) -> None:
    async def scenario() -> None:
        async with listening(tmp_path, listeners=listeners) as port:
            names = [Names(port, ca) for _ in range(20)]
            await asyncio.gather(*(one.connect(f"broker-{node}.{DOMAIN}") for node, one in enumerate(names)))
            assert sorted(node for node in port.made_for if node is not None) == list(range(20))

    run(scenario())


def test_another_name_or_none_ends_the_handshake(
    tmp_path: Path, ca: trustme.CA, listeners: Listeners, run: Run
) -> None:
    async def scenario() -> None:
        async with listening(tmp_path, listeners=listeners) as port:
            for server_name, counted in ((f"broker-x.{DOMAIN}", "unknown"), (HOST, "missing")):
                with capture_logs() as logs:
                    with pytest.raises(REFUSED):
                        await Names(port, ca).connect(server_name)
                    await port.failures(sum(port.stats.tls_server_names_rejected.values()) or 1)
                assert port.stats.tls_server_names_rejected[counted] == 1
                (line,) = [one for one in logs if one["event"] == "tls_server_name_rejected"]
                assert line["client"] == HOST
                assert (repr(server_name) if counted == "unknown" else "no host name") in line["reason"]
                assert BOOTSTRAP in line["remedy"]
                # The log says one such line a second.
                await asyncio.sleep(1.1)
            assert port.stats.tls_handshakes_failed == 2
            assert port.made_for == []

    run(scenario())


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_resumed_session_selects_the_same_broker(
    tmp_path: Path, ca: trustme.CA, listeners: Listeners, run: Run, newest: ssl.TLSVersion
) -> None:
    async def scenario() -> None:
        async with listening(tmp_path, listeners=listeners) as port:
            names = Names(port, ca, newest=newest)
            await names.connect(f"broker-1.{DOMAIN}")
            await names.connect(f"broker-1.{DOMAIN}")
            assert names.reused
            assert port.made_for == [1, 1]

    run(scenario())


def test_a_session_resumed_with_another_name_selects_by_that_name(
    tmp_path: Path, ca: trustme.CA, listeners: Listeners, run: Run
) -> None:
    async def scenario() -> None:
        async with listening(tmp_path, listeners=listeners) as port:
            names = Names(port, ca)
            await names.connect(f"broker-1.{DOMAIN}")
            await names.connect(f"broker-2.{DOMAIN}")
            assert port.made_for == [1, 2]

    run(scenario())


def hello_with(name: bytes) -> bytes:
    """Return a ClientHello with a host name that no library would send."""
    written = ".".join(["a" * 9] * (len(name) // 10)).ljust(len(name), "b")
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=written)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    sent = outgoing.read()
    assert sent.count(written.encode()) == 1
    return sent.replace(written.encode(), name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (b"\xff" * 40, "not ASCII"),
        (b"broker-\xd9\xa3\xd9\xa3." + DOMAIN.encode(), "not ASCII"),
        (b"\n\x1b[2J" * 40, "which selects no broker"),
        (b"broker-" + b"9" * 200, "which selects no broker"),
    ],
)
def test_foreign_bytes_are_one_log_line(
    tmp_path: Path,
    ca: trustme.CA,
    listeners: Listeners,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    name: bytes,
    reason: str,
) -> None:
    monkeypatch.setattr("sys.unraisablehook", sys.unraisablehook)
    log_unraisable()

    async def scenario() -> None:
        async with listening(tmp_path, listeners=listeners) as port:
            with capture_logs() as logs, socket.create_connection((HOST, port.port), timeout=30) as client:
                client.sendall(hello_with(name))
                await port.failures(1)
            events = [line["event"] for line in logs]
            assert events in (["error_ignored", "tls_handshake_failed"], ["tls_server_name_rejected"])
            assert reason in logs[-1]["reason"]
            assert logs[-1]["reason"].isprintable()
            await Names(port, ca).connect(f"broker-3.{DOMAIN}")
            assert port.made_for == [3]

    run(scenario())
