"""Lines that could come by the thousand are logged once a second."""

from __future__ import annotations

import structlog

from proxy.telemetry.throttled_log import ThrottledLog


def test_one_line_a_second_says_how_many_were_left_out():
    clock = [100.0]
    throttled = ThrottledLog(lambda: clock[0])
    with structlog.testing.capture_logs() as lines:
        for _ in range(4):
            throttled.warning("refused", client="a")
        throttled.warning("unreachable", client="b")  # another event has its own second
        clock[0] += 1
        throttled.warning("refused", client="c")
        clock[0] += 1
        throttled.warning("refused", client="d")
        throttled.error("missing", client="e")
        throttled.error("missing", client="f")
    assert [(line["event"], line["client"], line["more_like_it"]) for line in lines] == [
        ("refused", "a", 0),
        ("unreachable", "b", 0),
        ("refused", "c", 3),
        ("refused", "d", 0),
        ("missing", "e", 0),
    ]
    assert [line["log_level"] for line in lines] == ["warning"] * 4 + ["error"]
