"""TLS contexts from files: an error is one line, changed files are reloaded, and expiry is warned of."""

from __future__ import annotations

import asyncio
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from structlog.testing import capture_logs

from proxy.config.security import BrokerTls, ListenerTls
from proxy.security.tls import TlsError, broker_tls, keep_fresh, listener_tls


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def files(tmp_path: Path, ca: trustme.CA) -> Path:
    """A folder with certificates of all kinds."""
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    for name in ("one", "two"):
        issued = ca.issue_cert("localhost", common_name=name)
        issued.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / f"{name}.pem"))
        issued.cert_chain_pems[0].write_to_path(str(tmp_path / f"{name}-cert.pem"))
        issued.private_key_pem.write_to_path(str(tmp_path / f"{name}-key.pem"))
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"hush"))
        (tmp_path / f"{name}-locked.pem").write_bytes(locked)
    (tmp_path / "text.pem").write_text("nothing of that kind\n")
    (tmp_path / "binary.pem").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "broken.pem").write_text(
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\nAAAA\n"
    )
    return tmp_path


def listener(files: Path, **settings: str) -> ListenerTls:
    paths = {name: str(files / value) if name.endswith("file") else value for name, value in settings.items()}
    return ListenerTls(**paths)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [
        {"certificate_file": "one.pem"},
        {"certificate_file": "one-cert.pem", "key_file": "one-key.pem"},
        {"certificate_file": "one-cert.pem", "key_file": "one-locked.pem", "key_password": "hush"},
        {"certificate_file": "one.pem", "client_ca_file": "ca.pem", "client_auth": "required"},
    ],
)
def test_usable_settings(files: Path, settings: dict[str, str]) -> None:
    context = listener_tls(listener(files, **settings), "listeners.tls").context
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    required = settings.get("client_auth") == "required"
    assert context.verify_mode is (ssl.CERT_REQUIRED if required else ssl.CERT_NONE)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"certificate_file": "none.pem"}, "listeners.tls.certificate_file: can't read"),
        ({"certificate_file": "text.pem"}, "listeners.tls.certificate_file: .* does not contain a PEM certificate"),
        ({"certificate_file": "binary.pem"}, "listeners.tls.certificate_file: .* convert it to PEM"),
        ({"certificate_file": "broken.pem"}, "listeners.tls.certificate_file: .*can't be parsed"),
        ({"certificate_file": "one-cert.pem"}, "listeners.tls.certificate_file: .* does not contain a PEM private key"),
        ({"certificate_file": "one-cert.pem", "key_file": "none.pem"}, "listeners.tls.key_file: can't read"),
        (
            {"certificate_file": "one-cert.pem", "key_file": "ca.pem"},
            "listeners.tls.key_file: .* does not contain a PEM private key",
        ),
        (
            {"certificate_file": "one-cert.pem", "key_file": "two-key.pem"},
            "listeners.tls.key_file: .* does not belong to the certificate",
        ),
        (
            {"certificate_file": "one-cert.pem", "key_file": "one-locked.pem"},
            "listeners.tls.key_password: does not open",
        ),
        (
            {"certificate_file": "one-cert.pem", "key_file": "one-locked.pem", "key_password": "mistaken"},
            "listeners.tls.key_password: does not open",
        ),
        (
            {"certificate_file": "one.pem", "client_ca_file": "text.pem", "client_auth": "required"},
            "listeners.tls.client_ca_file: .* does not contain a PEM certificate",
        ),
        (
            {"certificate_file": "one.pem", "client_ca_file": "broken.pem", "client_auth": "required"},
            "listeners.tls.client_ca_file: .* can't be parsed",
        ),
    ],
)
def test_each_error_is_named(files: Path, settings: dict[str, str], expected: str) -> None:
    with pytest.raises(TlsError, match=expected) as caught:
        listener_tls(listener(files, **settings), "listeners.tls")
    assert "\n" not in str(caught.value)
    assert "mistaken" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_brokers_are_checked_by_name_and_ca(files: Path) -> None:
    context = broker_tls(BrokerTls(ca_file=str(files / "ca.pem"))).context
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert len(context.get_ca_certs()) == 1
    relaxed = broker_tls(BrokerTls(ca_file=str(files / "ca.pem"), check_hostname=False)).context
    assert not relaxed.check_hostname
    assert relaxed.verify_mode is ssl.CERT_REQUIRED
    with pytest.raises(TlsError, match=r"brokers\.tls\.ca_file: can't read"):
        broker_tls(BrokerTls(ca_file=str(files / "none.pem")))


def test_changed_files_are_taken_over_and_broken_ones_are_not(files: Path) -> None:
    used = files / "used.pem"
    used.write_bytes((files / "one.pem").read_bytes())
    tls = listener_tls(listener(files, certificate_file="used.pem"), "listeners.tls")
    first = tls.context
    assert not tls.refresh()
    used.write_bytes((files / "two.pem").read_bytes())
    assert tls.refresh()
    second = tls.context
    assert second is not first
    used.write_text("no certificate")
    with capture_logs() as logs:
        assert not tls.refresh()
        assert not tls.refresh()
    (line,) = logs
    assert line["event"] == "certificates_not_reloaded"
    assert "listeners.tls.certificate_file" in line["reason"]
    assert tls.context is second
    used.unlink()
    with capture_logs() as logs:
        assert not tls.refresh()
    assert "can't read" in logs[0]["reason"]
    used.write_bytes((files / "one.pem").read_bytes())
    assert tls.refresh()


def test_a_mounted_secret_changes_behind_its_link(files: Path) -> None:
    for name in ("one", "two"):
        (files / f"data-{name}").mkdir()
        (files / f"data-{name}" / "tls.pem").write_bytes((files / f"{name}.pem").read_bytes())
    (files / "data").symlink_to(files / "data-one")
    tls = listener_tls(listener(files, certificate_file="data/tls.pem"), "listeners.tls")
    (files / "new").symlink_to(files / "data-two")
    os.replace(files / "new", files / "data")
    assert tls.refresh()


def issue_for(ca: trustme.CA, path: Path, left: timedelta) -> None:
    ca.issue_cert("localhost", not_after=datetime.now(UTC) + left).private_key_and_cert_chain_pem.write_to_path(
        str(path)
    )


@pytest.mark.parametrize(("left", "warns"), [(timedelta(days=30), False), (timedelta(days=3), True)])
def test_an_end_that_is_near_is_warned_of_once_a_day(files: Path, ca: trustme.CA, left: timedelta, warns: bool) -> None:
    issue_for(ca, files / "used.pem", left)
    tls = listener_tls(listener(files, certificate_file="used.pem"), "listeners.tls")
    with capture_logs() as logs:
        tls.warn_of_expiry(timedelta(days=14))
        tls.warn_of_expiry(timedelta(days=14))
    assert [line["event"] for line in logs] == ["certificate_expires"] * warns
    assert not any(line["expired"] for line in logs)


def test_a_certificate_that_has_ended_is_said_to_have(files: Path, ca: trustme.CA) -> None:
    issue_for(ca, files / "used.pem", timedelta(days=-1))
    tls = listener_tls(listener(files, certificate_file="used.pem"), "listeners.tls")
    with capture_logs() as logs:
        tls.warn_of_expiry(timedelta(days=14))
    assert logs[0]["expired"]
    assert "renew" in logs[0]["remedy"]


async def test_files_are_checked_forever(files: Path) -> None:
    used = files / "used.pem"
    used.write_bytes((files / "one.pem").read_bytes())
    tls: Any = listener_tls(listener(files, certificate_file="used.pem"), "listeners.tls")
    before = tls.context
    task = asyncio.create_task(keep_fresh([tls], 0.01, timedelta(days=1)))
    used.write_bytes((files / "two.pem").read_bytes())
    async with asyncio.timeout(30):
        while tls.context is before:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
