"""Run `diskless-proxy check` with brokers that have TLS, SASL and ACLs: all is well, and each misconfiguration."""

from __future__ import annotations

import socketserver
import struct
import threading
from pathlib import Path
from typing import Any

import pytest
import trustme

from proxy.demo.ports import HOST, ReservedPorts
from proxy.demo.proxies import merged
from proxy.demo.security import SERVICE, unsecured_token
from proxy.demo.stack import Stack
from tests.support.acls import Acls
from tests.support.checking import (
    assert_reported,
    checked,
    findings,
    settings_of_another_proxy,
    without_machine_findings,
    written,
)
from tests.support.misconfigurations import Misconfiguration, Needs, needing

SECRET = "hush-hush-hush"


@pytest.fixture(scope="module")
def reserved() -> Any:
    reserved = ReservedPorts(None, proxies=1)
    yield reserved
    reserved.release()


def sasl_of(name: str, stack: Stack, here: Path) -> dict[str, Any]:
    """Return SASL settings that replace the proxies' own."""
    password = stack.security.users["alice"]
    expired = here / "expired"
    expired.write_text(unsecured_token(SERVICE, lifetime_s=-3600))
    return {
        "sasl_password": {"mechanism": "SCRAM-SHA-512", "username": SERVICE, "password": SECRET},
        "token_file": {"mechanism": "OAUTHBEARER", "token_file": str(here / "token")},
        "token_expired": {"mechanism": "OAUTHBEARER", "token_file": str(expired)},
        "no_rights": {"mechanism": "SCRAM-SHA-512", "username": "alice", "password": password},
    }[name]


def wrong_settings(name: str, stack: Stack, here: Path) -> dict[str, Any]:
    """Return the whole `brokers` section."""
    good = stack.proxies["rack-a"].settings["brokers"]
    if name == "plain_to_tls":
        return {"bootstrap": good["bootstrap"]}
    if name == "wrong_ca":
        trustme.CA().cert_pem.write_to_path(str(here / "ca.pem"))
        return merged(good, {"tls": {"ca_file": str(here / "ca.pem")}})
    return {**good, "sasl": sasl_of(name, stack, here)}


@pytest.mark.parametrize(
    "case", [one for one in needing(Needs.SECURE) if one.name != "sasl_mechanism"], ids=lambda one: one.name
)
def test_misconfigured_connections(
    case: Misconfiguration, secure: Stack, reserved: ReservedPorts, tmp_path: Path
) -> None:
    Acls(secure).revoke("alice")
    settings = settings_of_another_proxy(secure, reserved)
    settings["brokers"] = wrong_settings(case.name, secure, tmp_path)
    settings["brokers"]["bootstrap"] = [secure.kafka.address(1)]
    besides = (
        "may not see the topic __diskless_journal of the journal; run kafka-acls" if case.name == "no_rights" else ""
    )
    said = checked(written(tmp_path, settings))
    assert besides in said.stdout.replace("\n", " ")
    assert_reported(case, said, SECRET, *secure.security.users.values(), besides=besides)


class _RefusesMechanisms(socketserver.StreamRequestHandler):
    """Answers SaslHandshake v1 with UNSUPPORTED_SASL_MECHANISM, and offers PLAIN."""

    def handle(self) -> None:
        (size,) = struct.unpack(">i", self.rfile.read(4))
        correlation_id = self.rfile.read(size)[4:8]
        answer = correlation_id + struct.pack(">hi", 33, 1) + struct.pack(">h", 5) + b"PLAIN"
        self.wfile.write(struct.pack(">i", len(answer)) + answer)
        self.rfile.read(1)


def test_a_mechanism_that_is_not_offered(secure: Stack, reserved: ReservedPorts, tmp_path: Path) -> None:
    (case,) = (one for one in needing(Needs.SECURE) if one.name == "sasl_mechanism")
    settings = settings_of_another_proxy(secure, reserved)
    sasl = {"mechanism": "SCRAM-SHA-512", "username": SERVICE, "password": SECRET}
    with socketserver.ThreadingTCPServer((HOST, 0), _RefusesMechanisms) as server:
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        bootstrap = f"{HOST}:{server.server_address[1]}"
        settings["brokers"] = {"bootstrap": [bootstrap], "security_protocol": "SASL_PLAINTEXT", "sasl": sasl}
        try:
            assert_reported(case, checked(written(tmp_path, settings)), SECRET)
        finally:
            server.shutdown()
            serving.join()


def test_the_documented_rights_are_sufficient(secure: Stack, reserved: ReservedPorts, tmp_path: Path) -> None:
    found = without_machine_findings(findings(written(tmp_path, settings_of_another_proxy(secure, reserved))))
    assert {finding["level"] for finding in found} == {"ok"}, found
    rights = " ".join(finding["text"] for finding in found if finding["kind"] == "rights at the brokers")
    assert "may describe all topics" in rights
    assert "may alter the cluster" in rights
