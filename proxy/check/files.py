"""Certificates, keys and CAs: can they be read, do they fit, when do they end; and the token of the admin port."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from proxy.admin.api.token import Token
from proxy.check.certificate_names import check_certificate_names
from proxy.check.findings import Finding, Kind, Level, error, from_error, ok, warning
from proxy.config import Settings
from proxy.config.security import BrokerTls
from proxy.process.ports import StartError
from proxy.security.tls import TlsError, TlsFiles, broker_tls, listener_tls


async def check_files(settings: Settings) -> list[Finding]:
    """Check the files of all listeners with TLS, of the connection to the brokers, and of the admin port."""
    found = []
    for listeners in settings.all_listeners:
        if (tls := listeners.tls) is not None:
            name = f"{settings.section_of(listeners)}.tls"
            found.append(_look(settings, name, tls.certificate_file, partial(listener_tls, tls, name)))
            if listeners.by_name and found[-1].level is not Level.ERROR:
                found.append(check_certificate_names(listeners, tls, name))
    if settings.brokers.security_protocol.endswith("SSL"):
        own = settings.brokers.tls or BrokerTls()
        found.append(_look(settings, "brokers.tls", own.certificate_file, partial(broker_tls, own)))
    if settings.admin.token_file is not None:
        found.append(_look_at_token(settings.admin.token_file))
    return found


def _look_at_token(path: Path) -> Finding:
    try:
        Token(path)
    except StartError as problem:
        where, _, text = str(problem).partition(": ")
        return from_error(Kind.FILES, where, text)
    return ok(Kind.FILES, "admin.token_file", "read")


def _look(settings: Settings, name: str, certificate: str, load: Callable[[], TlsFiles]) -> Finding:
    try:
        files = load()
    except TlsError as problem:
        where, _, text = str(problem).partition(": ")
        return from_error(Kind.FILES, where, text)
    return of_expiry(name, certificate, files.expires, datetime.now(UTC), settings.certificate_warning_days)


def of_expiry(name: str, certificate: str, expires: datetime | None, now: datetime, warning_days: int) -> Finding:
    """Return the finding about a certificate's expiry; `expires` is None if the proxy has no certificate of its own."""
    if expires is None:
        return ok(Kind.FILES, name, "read")
    where = f"{name}.certificate_file"
    remedy = f"renew {certificate}; the proxy reloads it without a restart"
    if expires <= now:
        return error(Kind.FILES, where, f"{certificate} has expired, at {expires:%Y-%m-%d %H:%M} UTC", remedy)
    if expires - now <= timedelta(days=warning_days):
        return warning(Kind.FILES, where, f"{certificate} expires at {expires:%Y-%m-%d %H:%M} UTC", remedy)
    return ok(Kind.FILES, where, f"{certificate} is good until {expires:%Y-%m-%d}")
