"""Connect to a stack with TLS and SASL, for tests that build requests by hand."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from proxy.demo.ports import HOST
from proxy.demo.stack import Stack
from tests.support.wire import TIMEOUT_SECONDS, Wire

REAUTHENTICATION_MS = 4000
"""`connections.max.reauth.ms` of SCRAM-SHA-512, which the proxies and the tests of re-authentication use."""


def tls_connection(stack: Stack, host: str, port: int, certificate: Path | None = None) -> ssl.SSLSocket:
    """Open a TLS connection without SASL, with a client certificate if one is given. Raises OSError."""
    context = ssl.create_default_context(cafile=str(stack.security.ca_file))
    if certificate is not None:
        context.load_cert_chain(certificate)
    connection = socket.create_connection((host, port), timeout=TIMEOUT_SECONDS)
    try:
        return context.wrap_socket(connection, server_hostname=host)
    except BaseException:
        connection.close()
        raise


def direct_wire(stack: Stack, user: str, node_id: int = 1) -> Wire:
    """Open an authenticated connection to a broker itself."""
    return Wire(stack.security.connect(HOST, stack.ports.broker(node_id), TIMEOUT_SECONDS, user))


def proxied_wire(stack: Stack, user: str, node_id: int = 1) -> Wire:
    """Open an authenticated connection to the first rack's listener of that broker."""
    port = stack.ports.broker_port_start(0) + node_id
    return Wire(stack.security.connect(HOST, port, TIMEOUT_SECONDS, user))
