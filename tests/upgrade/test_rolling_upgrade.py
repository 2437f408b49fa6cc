"""Upgrade from the previous release to this one under load, proxy by proxy, and move one of them back.

The test checks what clients notice, and that both releases can use one store and one bucket.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from proxy import __version__
from proxy.coordinator.layout import FORMAT_VERSION
from proxy.coordinator.shards import STORE_KEY
from proxy.demo.load import Load
from proxy.demo.stack import Stack
from tests.retention_under_load.books import Problems
from tests.soak.group import PROTOCOLS, Group
from tests.support.applications import Applications
from tests.support.load import OPTIONS, assert_right, wait_for_more
from tests.support.topics import KINDS
from tests.upgrade import release

RACKS = ("rack-a", "rack-b")
CLIENTS = ("go",)
NO_HISTORY = release.why_not()

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(NO_HISTORY), reason=NO_HISTORY or "the previous release is there"),
]


def is_of(stack: Stack, name: str, tree: Path) -> bool:
    """True if the running proxy was loaded from that tree."""
    environment = Path(f"/proc/{stack.proxies[name].process.pid}/environ").read_bytes().split(b"\0")
    return f"PYTHONPATH={tree}".encode() in environment


def replace_proxy(stack: Stack, name: str, program: tuple[str, ...]) -> None:
    """Drain the proxy, and start the other release in its place."""
    assert stack.terminate_proxy(name) == 0, stack.log_tail(f"proxy-{name}")
    stack.proxies[name].run_by(program)
    stack.start_proxy(name)


def test_upgrade_one_proxy_after_the_other_and_move_one_back(new_stack: Callable[..., Stack], tmp_path: Path) -> None:
    before = release.program(tmp_path)
    stack = new_stack(racks=RACKS, proxy_program=before, start_timeout_seconds=180.0)
    proxies = list(stack.proxies)
    assert all(is_of(stack, name, tmp_path) for name in proxies)
    # The other rack's proxy too: clients that lost their proxy use it meanwhile.
    bootstraps = {
        rack: ",".join(stack.bootstrap(one) for one in sorted(RACKS, key=lambda one: one != rack)) for rack in RACKS
    }
    problems = Problems()
    load_options = replace(OPTIONS, replication_factor=len(RACKS), records_per_second=40)

    with Applications(stack, bootstraps["rack-a"], CLIENTS) as applications, Load(bootstraps, load_options) as load:
        groups = [
            Group(protocol, list(bootstraps.values()), list(load.topics.values()), problems, 1)
            for protocol in PROTOCOLS
        ]

        def all_goes_on() -> None:
            for kind in KINDS:
                wait_for_more(load, kind)
            applications.wait_for_more()

        all_goes_on()
        steps = [*((name, ()) for name in proxies), (proxies[0], before)]
        for name, program in steps:
            replace_proxy(stack, name, program)
            assert is_of(stack, name, tmp_path) == bool(program)
            all_goes_on()
        tally = load.stop()
        for group in groups:
            group.finish()
        applications.finish()

    assert_right(tally)
    assert problems.reports == []
    assert [is_of(stack, name, tmp_path) for name in proxies] == [True, False]
    with redis.Redis.from_url(stack.redis.url) as store:
        layout = store.hmget(STORE_KEY, ["format", "release"])
    assert layout == [str(FORMAT_VERSION).encode(), __version__.encode()]
