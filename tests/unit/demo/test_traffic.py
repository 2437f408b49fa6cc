from proxy.demo.traffic import COORDINATION, CROSS_RACK, RECORDS, Growth, read_counters

CLASSIC, DISKLESS = (CROSS_RACK, "classic"), (CROSS_RACK, "diskless")
EXPOSITION = """\
# HELP diskless_proxy_record_bytes_total Bytes of produced and fetched records.
# TYPE diskless_proxy_record_bytes_total counter
diskless_proxy_record_bytes_total{client_rack="a",direction="fetch",kind="classic",serving_rack="a"} 5.0
diskless_proxy_record_bytes_total{client_rack="a",direction="produce",kind="classic",serving_rack="b"} 7.0
diskless_proxy_record_bytes_total{client_rack="a",direction="produce",kind="diskless",serving_rack="a"} 2.0
# TYPE diskless_proxy_cross_rack_bytes_total counter
diskless_proxy_cross_rack_bytes_total{kind="classic"} 7.0
diskless_proxy_cross_rack_bytes_total{kind="diskless"} 0.0
# TYPE diskless_proxy_coordination_bytes_total counter
diskless_proxy_coordination_bytes_total{direction="sent"} 10.0
diskless_proxy_coordination_bytes_total{direction="received"} 20.0
# TYPE diskless_proxy_connections gauge
diskless_proxy_connections 3.0
"""


def test_the_counters_are_summed_by_kind_of_topic() -> None:
    assert read_counters(EXPOSITION) == {
        (RECORDS, "classic"): 12.0,
        (RECORDS, "diskless"): 2.0,
        (CROSS_RACK, "classic"): 7.0,
        (CROSS_RACK, "diskless"): 0.0,
        (COORDINATION, ""): 30.0,
    }


def grown(*seen: dict[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    growth = Growth()
    for counters in seen:
        growth.see(counters)
    return growth.total


def test_growth_is_counted_from_the_first_look() -> None:
    assert grown({CLASSIC: 100.0}) == {}
    assert grown({CLASSIC: 100.0}, {CLASSIC: 110.0}, {CLASSIC: 115.0, DISKLESS: 3.0}) == {CLASSIC: 15.0, DISKLESS: 3.0}


def test_a_process_that_starts_again_counts_from_zero() -> None:
    assert grown({CLASSIC: 100.0}, {CLASSIC: 110.0}, {CLASSIC: 4.0}, {CLASSIC: 6.0}) == {CLASSIC: 16.0}


def test_one_counter_that_falls_is_a_restart_for_all() -> None:
    before = {CLASSIC: 1.0, DISKLESS: 50.0}
    assert grown(before, {CLASSIC: 2.0, DISKLESS: 7.0}) == {CLASSIC: 2.0, DISKLESS: 7.0}
    assert grown(before, {CLASSIC: 2.0}) == {CLASSIC: 2.0}  # the other one is not even there yet
