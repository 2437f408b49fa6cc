"""`diskless-proxy fleet`: processes are told by their proxy's name, whatever that holds."""

from __future__ import annotations

from proxy.cli.fleet import by_proxy
from proxy.coordinator.interface_fleet import ProxyRecord, SeenProxy


def test_processes_are_one_proxy_by_what_stands_before_the_last_hash() -> None:
    ids = ("edge#1#aa", "edge#1#bb", "edge#2#cc", "edge#dd")
    members = by_proxy(SeenProxy(ProxyRecord(one, "rack-a", (), 1), 1) for one in ids)
    assert [(member.name, len(member.processes)) for member in members] == [("edge", 1), ("edge#1", 2), ("edge#2", 1)]
