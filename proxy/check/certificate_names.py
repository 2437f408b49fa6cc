"""Check that a listener's certificate covers the names that select a broker, by a handshake in memory.

OpenSSL's own match decides, with its rules for wildcards (RFC 6125). The certificate is trusted as it is: whether
clients trust its CA is theirs to know.
"""

from __future__ import annotations

import ssl

from proxy.check.findings import Finding, Kind, error, ok
from proxy.config import Listeners, ListenerTls
from proxy.security.server_names import ServerNames
from proxy.security.tls import listener_tls

_FUTURE_BROKERS = (0, 12_345)
"""Node IDs whose names have to fit: a wildcard covers any of them."""
_MOST_STEPS = 8
"""A handshake in memory ends after fewer turns of its two sides."""


def check_certificate_names(listeners: Listeners, tls: ListenerTls, name: str) -> Finding:
    """Check the certificate of listeners with `sni_broker_host`; `name` is the section. The files can be read."""
    where = f"{name}.certificate_file"
    for host in (listeners.client_host, *map(listeners.host_of, _FUTURE_BROKERS)):
        if problem := _mismatch(listeners, tls, name, host):
            wildcard = f"*.{host.partition('.')[2]}"
            return error(
                Kind.FILES,
                where,
                f"{tls.certificate_file} does not cover the name {host} ({problem}), so clients reject it",
                f"renew it with {wildcard} in its subject alternative names",
            )
    return ok(Kind.FILES, where, f"{tls.certificate_file} covers {listeners.client_host} and the names of brokers")


def unverified() -> ssl.SSLContext:
    """Return a client's context that takes any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _mismatch(listeners: Listeners, tls: ListenerTls, name: str, host: str) -> str:
    """Return why a client that connects to the host rejects the certificate; empty if it does not."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.load_verify_locations(tls.certificate_file)
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server, server_hostname=host)
    server = listener_tls(tls, name, ServerNames(listeners)).context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(_MOST_STEPS):
        try:
            client.do_handshake()
            return ""
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLCertVerificationError as problem:
            return problem.verify_message.rstrip(".")
        try:
            server.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError as problem:
            return problem.reason or "the handshake failed"
    return "the handshake did not end"
