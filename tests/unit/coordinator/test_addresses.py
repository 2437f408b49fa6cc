"""The forms of `redis.url`."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from proxy import config
from proxy.coordinator.addresses import kind_of, sentinel_address, server_addresses, single_url


def test_one_server() -> None:
    url = "rediss://user:word@host:7000/3?ssl_ca_certs=/ca.pem"
    assert (kind_of(url), single_url(url)) == ("", url)


def test_servers_of_a_cluster() -> None:
    url = "rediss+cluster://user:w%2Crd@one:7000,[::1]:7001,two?ssl_ca_certs=/ca.pem"
    assert kind_of(url) == "cluster"
    assert server_addresses(url) == [("one", 7000), ("::1", 7001), ("two", 6379)]
    assert single_url(url) == "rediss://user:w%2Crd@one:7000?ssl_ca_certs=/ca.pem"


def test_sentinels() -> None:
    url = "redis+sentinel://user:word@one:7000,two/main/2?sentinel_username=a&sentinel_password=b%26c&health=1"
    address = sentinel_address(url)
    assert kind_of(url) == "sentinel"
    assert address.sentinels == [("one", 7000), ("two", 26379)]
    assert (address.service, address.username, address.password) == ("main", "a", "b&c")
    assert address.server_url == "redis://user:word@one:7000/2?health=1"


@pytest.mark.parametrize(
    "url",
    [
        "redis://host:6379/0",
        "unix:///socket",
        "redis+cluster://a,b:7000",
        "redis+cluster://[::1]:7000/0",
        "rediss+sentinel://a,b/main",
        "redis+sentinel://a/main/1",
    ],
)
def test_a_good_url_is_accepted(url: str) -> None:
    assert config.Redis(url=url).url == url


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis://a:1,b:2", "names several hosts"),
        ("unix+cluster://a", "use redis://"),
        ("redis+ring://a", "use redis://"),
        ("redis+cluster://a,,b", "names an empty host"),
        ("redis+cluster://a:x,b", "its port is not a number"),
        ("redis+cluster://a/3", "only database 0"),
        ("redis+sentinel://a", "names no primary"),
    ],
)
def test_a_wrong_url_is_rejected(url: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config.Redis(url=url)
