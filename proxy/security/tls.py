"""TLS contexts from files, read again when the files change.

A connection keeps the context that it began with; new ones take the newest. So a changed certificate, key or CA breaks
nothing that is open, and as every context has ticket keys of its own, no session outlives the CA that let it in. Files
that can't be used leave the last good context in place, and the log says why.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog
from pydantic import SecretStr

from proxy.config.security import BrokerTls, ListenerTls, TlsVersion
from proxy.security.certificate import first_expiry
from proxy.security.server_names import ServerNames
from proxy.wire.errors import ProtocolError

log = structlog.get_logger()

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_WARN_AGAIN = timedelta(days=1)

Signature = tuple[tuple[int, int, int] | None, ...]


class TlsError(Exception):
    """The files can't be used; one line that names setting, cause and remedy."""


class TlsFiles:
    """The TLS context for a section of the settings, and whether its files have changed since it was built.

    `name` is the section's name (`listeners.tls`). `build` creates the context or raises TlsError. `files` are the
    files that it reads, the certificate first (empty names are left out).
    """

    def __init__(self, name: str, files: Sequence[str], build: Callable[[str], ssl.SSLContext]) -> None:
        """Raise TlsError if the files can't be used."""
        self.name = name
        self._certificate = files[0]
        self._files = [Path(file) for file in files if file]
        self._build = build
        self._signature = self._sign()
        self.context = build(name)
        self._warned: tuple[datetime, datetime] | None = None

    @property
    def expires(self) -> datetime | None:
        """When the own certificate, or one that it rests on, ends, as the file says now; None if there is none."""
        if not self._certificate:
            return None
        try:
            return first_expiry(Path(self._certificate).read_text())
        except (OSError, UnicodeDecodeError, ProtocolError):
            return None

    def refresh(self) -> bool:
        """Take over changed files; whether there was something new to take. What can't be used is logged."""
        signature = self._sign()
        if signature == self._signature:
            return False
        # Also after a failure: the same broken files are not complained of again.
        self._signature = signature
        try:
            self.context = self._build(self.name)
        except TlsError as error:
            log.error("certificates_not_reloaded", reason=str(error), effect="the previous certificates stay in use")
            return False
        log.info("certificates_reloaded", settings=self.name, expires=_shown(self.expires))
        return True

    def warn_of_expiry(self, within: timedelta) -> None:
        """Say once a day that the certificate ends soon, or has ended."""
        expires, now = self.expires, datetime.now(UTC)
        if expires is None or expires - now > within:
            return
        if self._warned is not None and self._warned[0] == expires and now - self._warned[1] < _WARN_AGAIN:
            return
        self._warned = (expires, now)
        log.warning(
            "certificate_expires",
            settings=self.name,
            expires=_shown(expires),
            expired=expires <= now,
            remedy=f"renew {self._certificate}; the proxy reloads it without a restart",
        )

    def _sign(self) -> Signature:
        """Return a value that changes when a file does, also behind the symbolic links of a mounted secret."""
        signed: list[tuple[int, int, int] | None] = []
        for file in self._files:
            try:
                status = file.stat()
                signed.append((status.st_mtime_ns, status.st_size, status.st_ino))
            except OSError:
                signed.append(None)
        return tuple(signed)


async def keep_fresh(files: Iterable[TlsFiles], interval_s: float, warn_within: timedelta) -> None:
    """Look for changed files, forever, and warn of certificates that end soon."""
    watched = list(files)
    while True:
        for one in watched:
            # A large bundle of CAs takes milliseconds to read.
            await asyncio.to_thread(one.refresh)
            one.warn_of_expiry(warn_within)
        await asyncio.sleep(interval_s)


def listener_tls(settings: ListenerTls, name: str, names: ServerNames | None = None) -> TlsFiles:
    """TLS towards clients; `name` as in error texts. `names` are those that select a broker. Raises TlsError."""

    def build(section: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _set_versions(context, settings.minimum_version)
        _load_own(context, section, settings.certificate_file, settings.key_file, settings.key_password)
        if settings.client_ca_file:
            _load_ca(context, f"{section}.client_ca_file", settings.client_ca_file)
        context.verify_mode = _CLIENT_AUTH[settings.client_auth]
        if names is not None:
            context.sni_callback = names.select
        return context

    return TlsFiles(name, (settings.certificate_file, settings.key_file, settings.client_ca_file), build)


def broker_tls(settings: BrokerTls) -> TlsFiles:
    """TLS to the brokers. Raises TlsError."""

    def build(section: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _set_versions(context, settings.minimum_version)
        context.check_hostname = settings.check_hostname
        if settings.ca_file:
            _load_ca(context, f"{section}.ca_file", settings.ca_file)
        else:
            context.load_default_certs()
        if settings.certificate_file:
            _load_own(context, section, settings.certificate_file, settings.key_file, settings.key_password)
        return context

    return TlsFiles("brokers.tls", (settings.certificate_file, settings.key_file, settings.ca_file), build)


def explain(error: BaseException) -> str:
    """Return the text for a failed handshake, with the likely cause if OpenSSL's text does not give it."""
    if not isinstance(error, ssl.SSLError):
        if isinstance(error, (ConnectionError, BrokenPipeError)):
            return "the other side closed the connection during the TLS handshake"
        return str(error) or type(error).__name__
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the other side's certificate is not accepted: {error.verify_message.rstrip('.')}"
    return _REASONS.get(reason, reason.replace("_", " ").lower() or str(error))


_NO_TLS = "what came is no TLS"
_REASONS = {
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "PACKET_LENGTH_TOO_LONG": _NO_TLS,
    "HTTP_REQUEST": "an HTTP request came",
    "HTTPS_PROXY_REQUEST": "an HTTP request came",
    "RECORD_LAYER_FAILURE": _NO_TLS,
    "UNKNOWN_PROTOCOL": _NO_TLS,
    "UNSUPPORTED_PROTOCOL": "the other side knows only versions of TLS that minimum_version refuses",
    "CALLBACK_FAILED": "the host name in the handshake (SNI) is not ASCII",
    "NO_SHARED_CIPHER": "the two sides have no cipher in common",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client showed no certificate, and client_auth is required",
    "TLSV1_ALERT_UNKNOWN_CA": "the other side does not trust the CA of our certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the other side does not accept our certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the other side does not accept our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our certificate has expired",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the other side asks for a certificate, and none is configured",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the other side refused the handshake; it may ask for a certificate",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the other side refuses our versions of TLS",
}


def _set_versions(context: ssl.SSLContext, minimum: TlsVersion) -> None:
    context.minimum_version = _VERSIONS[minimum]
    # Renegotiation costs a server far more than a client that asks for it.
    context.options |= ssl.OP_NO_RENEGOTIATION


def _load_own(context: ssl.SSLContext, section: str, certificate: str, key: str, password: SecretStr) -> None:
    certificate_text = _read(f"{section}.certificate_file", certificate)
    if "-----BEGIN CERTIFICATE-----" not in certificate_text:
        raise TlsError(
            f"{section}.certificate_file: {certificate} does not contain a PEM certificate; name the right file"
        )
    key_setting = "key_file" if key else "certificate_file"
    key_text = _read(f"{section}.key_file", key) if key else certificate_text
    if "PRIVATE KEY-----" not in key_text:
        raise TlsError(
            f"{section}.{key_setting}: {key or certificate} does not contain a PEM private key; name the right file"
        )
    try:
        # Always with a password, or OpenSSL asks for one at the terminal.
        context.load_cert_chain(certificate, key or None, password.get_secret_value)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TlsError(
                f"{section}.{key_setting}: the key in {key or certificate} does not belong to the certificate "
                f"in {certificate}; name a matching pair"
            ) from None
        if "ENCRYPTED" in key_text:
            raise TlsError(
                f"{section}.key_password: does not open the key in {key or certificate}; set the right password"
            ) from None
        raise TlsError(
            f"{section}.certificate_file: {certificate} or its key is damaged and can't be parsed; replace them"
        ) from None
    except (OSError, ValueError) as error:
        raise TlsError(f"{section}.{key_setting}: can't be used ({error}); name the right file") from None


def _load_ca(context: ssl.SSLContext, setting: str, file: str) -> None:
    if "-----BEGIN" not in _read(setting, file):
        raise TlsError(f"{setting}: {file} does not contain a PEM certificate; name the right file")
    try:
        context.load_verify_locations(file)
    except (OSError, ValueError):
        raise TlsError(f"{setting}: {file} is damaged: its PEM certificates can't be parsed; replace it") from None


def _read(setting: str, file: str) -> str:
    try:
        return Path(file).read_text()
    except OSError as error:
        raise TlsError(f"{setting}: can't read {file}: {error.strerror}; name a file that the proxy may read") from None
    except UnicodeDecodeError:
        raise TlsError(f"{setting}: {file} is not a PEM file; convert it to PEM") from None


def _shown(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment is not None else None
