"""Object storage fails under load: diskless produces are retried, classic topics are not affected."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from proxy.demo.stack import Stack
from tests.support.load import OPTIONS, acknowledged, assert_right, load_of, wait_for_more
from tests.support.metrics import Metrics
from tests.support.readiness import wait_not_ready, wait_ready
from tests.support.topics import CLASSIC, DISKLESS
from tests.support.toxiproxy import closed_link, toxiproxy_server
from tests.support.waiting import wait_for


def test_a_directory_that_is_missing_for_a_while(stack: Stack) -> None:
    directory, elsewhere = stack.directory / "wal", stack.directory / "wal-elsewhere"
    with load_of(stack) as load:
        wait_for_more(load, DISKLESS)

        def settled() -> bool:
            before = acknowledged(load, DISKLESS)
            wait_for_more(load, CLASSIC, 300)
            time.sleep(0.5)
            return acknowledged(load, DISKLESS) == before

        directory.rename(elsewhere)
        try:
            wait_for(settled, "what was on its way is not there yet", 30)
            held = acknowledged(load, DISKLESS)
            wait_for_more(load, CLASSIC, 300)
            assert acknowledged(load, DISKLESS) == held
        finally:
            elsewhere.rename(directory)
        wait_for_more(load, DISKLESS, 200)
        tally = load.stop()
    assert sum(Metrics(stack, rack).value("upload_failures_total") for rack in stack.proxies) > 0
    assert_right(tally)


def test_an_s3_store_that_resets_hangs_and_refuses(new_stack: Callable[..., Stack], tmp_path: Path) -> None:
    rack = "rack-a"
    stack = new_stack(storage="s3", racks=(rack,))
    assert stack.s3 is not None
    with toxiproxy_server(tmp_path) as network:
        link = closed_link(network, "s3", stack.s3.endpoint_url.removeprefix("http://"))
        stack.terminate_proxy(rack)
        through = {"endpoint_url": f"http://{link.listen}", "request_timeout_ms": 1000, "max_attempts": 2}
        stack.configure_proxy(rack, {"storage": through})
        stack.start_proxy(rack, wait=False)
        assert link.listen in wait_not_ready(stack.admin_url(rack), "storage:")
        link.enable()
        wait_ready(stack.admin_url(rack))

        with load_of(stack, replace(OPTIONS, replication_factor=1)) as load:
            wait_for_more(load, DISKLESS)
            for toxic, attributes in (
                ("reset_peer", {"timeout": 0}),
                ("timeout", {"timeout": 0}),
                ("limit_data", {"bytes": 3000}),
            ):
                link.add_toxic(name=toxic, type=toxic, stream="upstream", attributes=attributes)
                time.sleep(2.5)
                wait_for_more(load, CLASSIC)
                link.destroy_toxic(toxic)
                wait_for_more(load, DISKLESS)
            with link.down():
                wait_for_more(load, CLASSIC, 200)
            wait_for_more(load, DISKLESS, 100)
            tally = load.stop()
        assert Metrics(stack, rack).value("upload_failures_total") > 0
    assert_right(tally)
