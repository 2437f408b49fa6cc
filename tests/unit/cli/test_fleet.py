"""`diskless-proxy fleet`: the proxy's name identifies its processes, whatever characters it has."""

from __future__ import annotations

from proxy.cli.fleet import by_proxy
from proxy.coordinator.interface_fleet import ListenersRecord, ProxyRecord, SeenProxy


def test_the_text_before_the_last_hash_identifies_a_proxy() -> None:
    ids = ("edge#1#aa", "edge#1#bb", "edge#2#cc", "edge#dd")
    listeners = ListenersRecord("", "rack-a", "127.0.0.1", 19092, 19100, "1")
    records = [ProxyRecord(one, "rack-a", (listeners,), 1) for one in ids]
    records.append(ProxyRecord("edge#1#storage", "rack-a", (), 1))  # it has no clients
    members = by_proxy(SeenProxy(one, 1) for one in records)
    assert [(member.name, len(member.processes)) for member in members] == [("edge", 1), ("edge#1", 2), ("edge#2", 1)]
