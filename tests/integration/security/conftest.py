"""One stack with TLS, SASL and ACLs for all tests of this folder; at the end, its logs are searched for secrets."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest

from proxy.demo.admin import get
from proxy.demo.stack import Stack
from tests.support.secure_wire import REAUTHENTICATION_MS
from tests.support.stacks import short_lived

RACKS = ("rack-a", "rack-b")


@pytest.fixture(scope="package")
def secure_stack() -> Iterator[Stack]:
    """Start two racks with SASL_SSL everywhere, StandardAuthorizer, and proxies that log at every level."""
    options = short_lived(
        security="sasl_ssl",
        racks=RACKS,
        broker_jmx=True,
        overrides={
            "log_level": "debug",
            "authorization_cache_ms": 500,
            "certificate_reload_interval_ms": 100,
            "brokers": {
                "metadata_refresh_ms": 1_000,
                "deleted_topics_confirm_ms": 4_000,
                "stray_records_interval_ms": 1_000,
            },
        },
        broker_properties={
            "listener.name.clients.scram-sha-512.connections.max.reauth.ms": str(REAUTHENTICATION_MS),
            "connection.failed.authentication.delay.ms": "1",
        },
    )
    with Stack(options) as stack:
        yield stack
        assert_no_secrets(stack)


@pytest.fixture
def secure(secure_stack: Stack) -> Iterator[Stack]:
    """Return the stack; restart everything that a test has stopped."""
    yield secure_stack
    secure_stack.heal()


def assert_no_secrets(stack: Stack) -> None:
    """Require that no password is in any log, metric or state page, in clear or in base64 as PLAIN sends it."""
    texts = {path.name: path.read_text(errors="replace") for path in (stack.directory / "logs").glob("proxy-*.log")}
    for rack in stack.proxies:
        status, texts[f"metrics of {rack}"] = get(stack.admin_url(rack), "/metrics", 10)
        assert status == 200, texts[f"metrics of {rack}"]
    assert all(texts.values())
    for user, password in stack.security.users.items():
        for secret in (password, base64.b64encode(password.encode()).decode().rstrip("=")):
            found = [name for name, text in texts.items() if secret in text]
            assert not found, f"the password of {user} is in {found}"
    bearer = [name for name, text in texts.items() if "eyJhbGciOi" in text or "auth=Bearer" in text]
    assert not bearer, f"a token is in {bearer}"
