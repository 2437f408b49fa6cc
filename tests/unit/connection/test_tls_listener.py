"""A TLS port on real sockets, on uvloop: certificates change under open connections, failures are logged."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop
from structlog.testing import capture_logs

from proxy.brokers.upstream import BrokerConnection, BrokerUnreachable, connect_broker
from proxy.config import Limits, Listeners
from proxy.config.security import BrokerTls, ListenerTls
from proxy.connection.connections import Connections
from proxy.connection.tls_listener import TlsListener
from proxy.security.server_names import ServerNames
from proxy.security.tls import TlsFiles, broker_tls, listener_tls
from proxy.telemetry.stats import Stats

HOST = "127.0.0.1"
REFUSED = (ssl.SSLError, ConnectionError)
"""With TLS 1.3 a client may find out only when it reads."""


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)  # type: ignore[attr-defined]


class Port:
    """A listener and its counts."""

    def __init__(self, directory: Path, limits: Limits, client_auth: str, listeners: Listeners | None = None) -> None:
        self.made_for: list[int | None] = []
        self.certificate, self.ca_file = directory / "listener.pem", directory / "clients.pem"
        settings: dict[str, Any] = {"certificate_file": str(self.certificate)}
        if client_auth != "none":
            settings |= {"client_ca_file": str(self.ca_file), "client_auth": client_auth}
        names = ServerNames(listeners) if listeners is not None else None
        self.tls: TlsFiles = listener_tls(ListenerTls(**settings), "listeners.tls", names)
        self.stats = Stats()
        self.connections = Connections(limits, self.stats)
        self._socket = socket.socket()
        self._socket.bind((HOST, 0))
        self.port = self._socket.getsockname()[1]
        self.listener = TlsListener(
            self._socket, self.tls, self.make, self.connections, limits, node_id=7, by_name=names is not None
        )

    def make(self, node_id: int | None) -> asyncio.Protocol:
        self.made_for.append(node_id)
        return Echo()

    async def failures(self, count: int) -> None:
        """Wait until this many handshakes have failed."""
        async with asyncio.timeout(30):
            while self.stats.tls_handshakes_failed < count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@pytest.fixture
def ca(tmp_path: Path) -> trustme.CA:
    authority = trustme.CA()
    issue(authority, tmp_path / "listener.pem")
    authority.cert_pem.write_to_path(str(tmp_path / "clients.pem"))
    return authority


def issue(ca: trustme.CA, path: Path) -> Path:
    ca.issue_cert(HOST, "localhost").private_key_and_cert_chain_pem.write_to_path(str(path))
    return path


@asynccontextmanager
async def listening(
    directory: Path, client_auth: str = "none", listeners: Listeners | None = None, **limits: int
) -> AsyncIterator[Port]:
    port = Port(directory, Limits(**limits), client_auth, listeners)
    port.listener.start(100)
    try:
        yield port
    finally:
        port.listener.close()


class Client:
    """A blocking socket, so that nothing of the clients' is on the loop."""

    def __init__(self, port: Port, ca: trustme.CA, own: Path | None = None) -> None:
        context = ssl.create_default_context()
        ca.configure_trust(context)
        if own is not None:
            context.load_cert_chain(own)
        plain = socket.create_connection((HOST, port.port), timeout=30)
        try:
            self._socket = context.wrap_socket(plain, server_hostname=HOST)
        except BaseException:
            plain.close()
            raise

    def echoed(self) -> None:
        """The connection works both ways. Raises OSError."""
        self._socket.sendall(b"there and back")
        received = b""
        while len(received) < 14:
            part = self._socket.recv(14)
            if not part:
                raise ConnectionError("closed")
            received += part
        assert received == b"there and back"

    def close(self) -> None:
        self._socket.close()


async def connect(port: Port, ca: trustme.CA, own: Path | None = None) -> Client:
    """A connection that works. Raises OSError."""

    def work() -> Client:
        client = Client(port, ca, own)
        try:
            client.echoed()
        except BaseException:
            client.close()
            raise
        return client

    return await asyncio.to_thread(work)


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, None]], None]:
    """On the product's event loop."""
    return uvloop.run


Run = Callable[[Coroutine[Any, Any, None]], None]


def test_a_new_certificate_is_for_new_connections_and_breaks_no_old_one(
    tmp_path: Path, ca: trustme.CA, run: Run
) -> None:
    async def scenario() -> None:
        async with listening(tmp_path) as port:
            first = await connect(port, ca)
            other = trustme.CA()
            issue(other, port.certificate)
            assert port.tls.refresh()
            with pytest.raises(ssl.SSLCertVerificationError):
                await connect(port, ca)
            second = await connect(port, other)
            await asyncio.to_thread(first.echoed)
            port.certificate.write_text("broken")
            assert not port.tls.refresh()
            third = await connect(port, other)
            for one in (first, second, third):
                one.close()

    run(scenario())


def test_client_certificates_are_those_of_the_newest_ca(tmp_path: Path, ca: trustme.CA, run: Run) -> None:
    async def scenario() -> None:
        async with listening(tmp_path, "required") as port:
            mine = issue(ca, tmp_path / "client.pem")
            first = await connect(port, ca, mine)
            with pytest.raises(REFUSED):
                await connect(port, ca)
            other = trustme.CA()
            theirs = issue(other, tmp_path / "other.pem")
            with pytest.raises(REFUSED):
                await connect(port, ca, theirs)
            other.cert_pem.write_to_path(str(port.ca_file))
            assert port.tls.refresh()
            second = await connect(port, ca, theirs)
            with pytest.raises(REFUSED):
                await connect(port, ca, mine)
            await asyncio.to_thread(first.echoed)
            first.close()
            second.close()
            await port.failures(3)

    run(scenario())


def test_a_requested_certificate_may_be_missing_but_not_be_a_strangers(
    tmp_path: Path, ca: trustme.CA, run: Run
) -> None:
    async def scenario() -> None:
        async with listening(tmp_path, "requested") as port:
            without = await connect(port, ca)
            known = await connect(port, ca, issue(ca, tmp_path / "client.pem"))
            with pytest.raises(REFUSED):
                await connect(port, ca, issue(trustme.CA(), tmp_path / "other.pem"))
            without.close()
            known.close()

    run(scenario())


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b"\0\0\0\x1b\0\x12\0\3\0\0\0\1\0\6client" + bytes(20), "no TLS; set the client's security.protocol to SSL"),
        (b"GET / HTTP/1.1\r\n\r\n", "an HTTP request came; set the client's security.protocol"),
        (b"", "closed the connection during the TLS handshake"),
    ],
)
def test_an_invalid_handshake_is_logged(tmp_path: Path, ca: trustme.CA, run: Run, sent: bytes, expected: str) -> None:
    async def scenario() -> None:
        async with listening(tmp_path) as port:
            client = socket.create_connection((HOST, port.port))
            with capture_logs() as logs:
                client.sendall(sent)
                if not sent:
                    client.close()
                await port.failures(1)
            client.close()
            assert expected in logs[0]["reason"], logs
            assert logs[0]["client"] == HOST

    run(scenario())


def test_silence_has_an_end_and_takes_a_place_meanwhile(tmp_path: Path, ca: trustme.CA, run: Run) -> None:
    async def scenario() -> None:
        async with listening(tmp_path, tls_handshake_timeout_ms=300, max_connections_per_ip=2) as port:
            silent = [socket.create_connection((HOST, port.port)) for _ in range(2)]
            async with asyncio.timeout(30):
                while port.connections.handshakes < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            with capture_logs() as logs:
                refused = socket.create_connection((HOST, port.port), timeout=30)
                assert await asyncio.to_thread(refused.recv, 1) == b""
                await port.failures(2)
            events = {line["event"]: line["reason"] for line in logs}
            assert events["connection_refused"] == "limits.max_connections_per_ip is reached"
            assert events["tls_handshake_failed"] == "no TLS handshake within limits.tls_handshake_timeout_ms"
            client = await connect(port, ca)
            for one in (client, refused, *silent):
                one.close()

    run(scenario())


def test_many_come_at_once(tmp_path: Path, ca: trustme.CA, run: Run) -> None:
    async def scenario() -> None:
        async with listening(tmp_path) as port:
            clients = await asyncio.gather(*(connect(port, ca) for _ in range(50)))
            for client in clients:
                await asyncio.to_thread(client.echoed)
                client.close()
            assert port.stats.tls_handshakes_failed == 0

    run(scenario())


def test_a_broker_is_known_by_its_name_and_ca(tmp_path: Path, ca: trustme.CA, run: Run) -> None:
    """Do what a proxy does with its brokers: this port stands for one."""

    async def connection_result(port: Port, **settings: Any) -> str:
        context = broker_tls(BrokerTls(**settings)).context
        protocol = BrokerConnection(max_frame_bytes=1024)
        try:
            await connect_broker(HOST, port.port, protocol, 30, context)
        except BrokerUnreachable as error:
            return str(error)
        finally:
            protocol.close()
        return "connected"

    async def scenario() -> None:
        elsewhere = ca.issue_cert("elsewhere.example")
        elsewhere.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "listener.pem"))
        stranger = tmp_path / "stranger.pem"
        trustme.CA().cert_pem.write_to_path(str(stranger))
        known = str(tmp_path / "clients.pem")
        async with listening(tmp_path) as port:
            assert "is not accepted: IP address mismatch" in await connection_result(port, ca_file=known)
            assert await connection_result(port, ca_file=known, check_hostname=False) == "connected"
            answer = await connection_result(port, ca_file=str(stranger), check_hostname=False)
            assert "certificate is not accepted: " in answer
            assert answer.endswith("check brokers.tls, and that this is a port of brokers.security_protocol")

    run(scenario())


def test_a_broker_that_speaks_no_tls(tmp_path: Path, ca: trustme.CA, run: Run) -> None:
    async def scenario() -> None:
        server = await asyncio.get_running_loop().create_server(Echo, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        context = broker_tls(BrokerTls(ca_file=str(tmp_path / "clients.pem"))).context
        with pytest.raises(BrokerUnreachable, match="check brokers.tls") as caught:  # noqa: RUF043
            await connect_broker(HOST, port, BrokerConnection(max_frame_bytes=1024), 30, context)
        assert f"{HOST}:{port}: " in str(caught.value)
        server.close()

    run(scenario())
