"""`check` with `sni_broker_host`: the certificate covers the names, and the names resolve and lead here."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from proxy.check.addresses import check_addresses
from proxy.check.files import check_files
from proxy.check.findings import Finding, Level
from proxy.config import Settings
from proxy.connection.connections import Connections
from proxy.connection.tls_listener import TlsListener
from proxy.process.ports import Bound, bind_all
from proxy.security.server_names import ServerNames
from proxy.security.tls import listener_tls
from proxy.telemetry.stats import Stats
from tests.support.ports import free_port

DOMAIN = "rack-a.kafka.example.com"
BOOTSTRAP, FIRST, JOINING = (f"{name}.{DOMAIN}" for name in ("bootstrap", "broker-1", "broker-2"))


def settings(directory: Path, *identities: str, **listeners: Any) -> Settings:
    certificate = directory / "listener.pem"
    issued = trustme.CA().issue_cert(*identities)
    issued.private_key_and_cert_chain_pem.write_to_path(str(certificate))
    return Settings.model_validate(
        {
            "rack": "rack-a",
            "brokers": {"bootstrap": ["b:1"]},
            "redis": {"url": "redis://r:1"},
            "storage": {"url": "file:///w"},
            "listeners": {
                "bootstrap_port": free_port(),
                "advertised_host": BOOTSTRAP,
                "sni_broker_host": f"broker-{{node_id}}.{DOMAIN}",
                "tls": {"certificate_file": str(certificate)},
                **listeners,
            },
        }
    )


@pytest.mark.parametrize(
    ("identities", "left_out"),
    [
        ((f"*.{DOMAIN}",), ""),
        ((f"*.{DOMAIN}", "kafka.example.com"), ""),
        (("*.kafka.example.com",), BOOTSTRAP),
        ((BOOTSTRAP, FIRST), f"broker-0.{DOMAIN}"),
        ((f"*.{DOMAIN.replace('-a', '-b')}",), BOOTSTRAP),
    ],
)
async def test_the_certificate_covers_all_names_or_an_error_names_one(
    tmp_path: Path, identities: tuple[str, ...], left_out: str
) -> None:
    readable, found = await check_files(settings(tmp_path, *identities))
    assert readable.level is Level.OK
    if not left_out:
        assert (found.level, found.remedy) == (Level.OK, "")
        return
    assert found.level is Level.ERROR
    assert f"the name {left_out} (Hostname mismatch" in found.text
    assert f"*.{DOMAIN}" in found.remedy


async def test_a_certificate_for_clients_that_show_their_own_is_checked_too(tmp_path: Path) -> None:
    ca_file = tmp_path / "clients.pem"
    trustme.CA().cert_pem.write_to_path(str(ca_file))
    one = settings(tmp_path, f"*.{DOMAIN}")
    tls = {
        "certificate_file": str(tmp_path / "listener.pem"),
        "client_ca_file": str(ca_file),
        "client_auth": "required",
    }
    with_clients = Settings.model_validate(
        {**one.model_dump(), "listeners": {**one.listeners.model_dump(), "tls": tls}, "shared_principal": True}
    )
    assert [finding.level for finding in await check_files(with_clients)] == [Level.OK, Level.OK]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the addresses by name that this process resolves."""
    known = {BOOTSTRAP: "127.0.0.1", FIRST: "127.0.0.1", JOINING: "127.0.0.1"}
    resolve = socket.getaddrinfo

    def getaddrinfo(host: Any, *arguments: Any, **more: Any) -> Any:
        if isinstance(host, str) and host.endswith(DOMAIN):
            if host not in known:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            host = known[host]
        return resolve(host, *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return known


@pytest.fixture
def bound(tmp_path: Path) -> Iterator[tuple[Settings, list[Bound]]]:
    of_test = settings(tmp_path, f"*.{DOMAIN}")
    sockets = bind_all(of_test)
    yield of_test, sockets
    for one in sockets:
        one.socket.close()


def by_name(found: list[Finding]) -> dict[str, Level]:
    return {one.text.partition(":")[0].partition(" ")[0]: one.level for one in found}


async def test_each_live_broker_and_one_that_may_join_has_a_name_that_leads_here(
    names: dict[str, str], bound: tuple[Settings, list[Bound]]
) -> None:
    found = await check_addresses(*bound, {1})
    assert by_name(found) == {BOOTSTRAP: Level.OK, FIRST: Level.OK, JOINING: Level.OK}
    assert {one.where for one in found} == {"listeners.advertised_host", "listeners.sni_broker_host"}


@pytest.mark.parametrize(
    ("missing", "level", "text"),
    [
        (BOOTSTRAP, Level.ERROR, "can't be resolved"),
        (FIRST, Level.ERROR, "can't be resolved"),
        (JOINING, Level.WARNING, "clients will not reach a broker of that ID when it joins"),
    ],
)
async def test_a_name_that_can_not_be_resolved_is_found(
    names: dict[str, str], bound: tuple[Settings, list[Bound]], missing: str, level: Level, text: str
) -> None:
    del names[missing]
    (found,) = [one for one in await check_addresses(*bound, {1}) if one.level is not Level.OK]
    assert (found.level, found.text.startswith(missing), text in found.text) == (level, True, True)


async def test_a_name_that_leads_elsewhere_is_found(names: dict[str, str], bound: tuple[Settings, list[Bound]]) -> None:
    names[FIRST] = "127.0.0.2"
    (found,) = [one for one in await check_addresses(*bound, {1}) if one.level is not Level.OK]
    assert found.level is Level.WARNING
    assert found.text.startswith(FIRST)


class Served(asyncio.Protocol):
    """A client of a running proxy."""


async def test_a_running_proxy_is_asked_whether_it_takes_the_names(
    names: dict[str, str], bound: tuple[Settings, list[Bound]]
) -> None:
    """The proxy that runs may have older settings than the file."""
    of_test, (port,) = bound
    older = of_test.listeners.model_copy(update={"sni_broker_host": f"node-{{node_id}}.{DOMAIN}"})
    assert older.tls is not None
    tls = listener_tls(older.tls, "listeners.tls", ServerNames(older))
    connections = Connections(of_test.limits, Stats())
    listener = TlsListener(port.socket, tls, lambda _: Served(), connections, of_test.limits, by_name=True)
    listener.start(10)
    try:
        found = await check_addresses(of_test, (), {1})
    finally:
        listener.close()
    assert by_name(found) == {BOOTSTRAP: Level.OK, FIRST: Level.WARNING, JOINING: Level.WARNING}
    assert "does not take the name in a TLS handshake" in found[1].text
