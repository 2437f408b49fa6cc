"""The files that a cluster's servers begin with: each slot is served once, and all servers agree."""

from __future__ import annotations

from proxy.demo.ports import Ports
from proxy.demo.valkeys import PRIMARIES, SLOTS, nodes_file, store_of

AT = [(20_000 + number, 20_010 + number) for number in range(PRIMARIES)]


def nodes(text: str) -> list[list[str]]:
    *lines, variables = text.splitlines()
    assert variables.startswith("vars currentEpoch 3 ")
    return [line.split() for line in lines]


def test_every_slot_has_one_server() -> None:
    slots = []
    for node in nodes(nodes_file(AT, 0)):
        first, last = map(int, node[-1].split("-"))
        slots += range(first, last + 1)
    assert slots == list(range(SLOTS))


def test_all_servers_agree_but_for_themselves() -> None:
    files = [nodes(nodes_file(AT, number)) for number in range(PRIMARIES)]
    for number, file in enumerate(files):
        assert [node[2] for node in file] == ["myself,master" if n == number else "master" for n in range(PRIMARIES)]
        assert [node[:2] + node[3:] for node in file] == [node[:2] + node[3:] for node in files[0]]
    assert len({node[0] for node in files[0]}) == PRIMARIES


def test_each_kind_of_store_has_a_url_of_its_kind_and_its_own_names(tmp_path) -> None:
    ports = Ports(20_000, 3)
    single, cluster, watched = (store_of(kind, tmp_path, ports) for kind in ("single", "cluster", "sentinel"))
    assert single.url == "redis://127.0.0.1:20010/0"
    assert cluster.url == "redis+cluster://127.0.0.1:20080,127.0.0.1:20081,127.0.0.1:20082"
    assert watched.url == "redis+sentinel://127.0.0.1:20082,127.0.0.1:20083,127.0.0.1:20084/coordinator/0"
    assert [process.name for process in cluster.processes] == ["redis-1", "redis-2", "redis-3"]
    assert [process.name for process in watched.processes][:3] == ["redis-1", "redis-2", "sentinel-1"]
