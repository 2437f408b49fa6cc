"""Host names that requests may use, and origins that may send them."""

from __future__ import annotations

import pytest

from proxy.admin.api.hosts import is_own_origin, may_be_asked_for


@pytest.mark.parametrize(
    "header",
    ["127.0.0.1:19080", "127.0.0.1", "127.8.9.1:1", "localhost:9999", "LOCALHOST", "localhost.", "[::1]:19080"],
)
def test_a_port_on_loopback_answers_to_loopback_names(header: str) -> None:
    assert may_be_asked_for(header, "127.0.0.1", ())


@pytest.mark.parametrize(
    "header",
    [
        *("", "evil.example", "evil.example:19080", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1"),
        *("[::1", "127.0.0.1@evil.example", "evil.example#127.0.0.1", "0.0.0.0:19080", "[::ffff:10.0.0.1]"),
    ],
)
def test_a_port_on_loopback_answers_to_no_other(header: str) -> None:
    assert not may_be_asked_for(header, "127.0.0.1", ())
    assert not may_be_asked_for(header, "localhost", ())


def test_requests_to_allowed_names_are_answered() -> None:
    assert may_be_asked_for("Admin.Example:443", "127.0.0.1", ("admin.example",))
    assert not may_be_asked_for("other.example", "127.0.0.1", ("admin.example",))


def test_a_port_on_all_addresses_accepts_any_name() -> None:
    assert may_be_asked_for("proxy-0.proxies.svc:19080", "0.0.0.0", ())


def test_a_page_of_this_port_may_act_and_no_other() -> None:
    assert is_own_origin("http://127.0.0.1:19080", "127.0.0.1:19080")
    assert is_own_origin("https://admin.example", "admin.example")
    for foreign in (
        "http://127.0.0.1:19081",
        "http://evil.example",
        "null",
        "",
        "127.0.0.1:19080",
        "http://[",
        "file://",
    ):
        assert not is_own_origin(foreign, "127.0.0.1:19080")
