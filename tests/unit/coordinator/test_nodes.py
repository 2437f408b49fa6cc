"""Rates and lags of the store's servers, from what INFO reports."""

from __future__ import annotations

from proxy.coordinator.nodes import Look, lag_of, with_rates

LOOK = Look("a:1", 10.0, 100, (0,), script_runs=1_000, cpu_s=5.0)


def test_counters_of_two_looks_make_rates() -> None:
    (node,) = with_rates([LOOK], [LOOK._replace(at_s=12.0, script_runs=1_500, cpu_s=5.5)])
    assert (node.runs_per_second, node.cpu_share) == (250.0, 0.25)


def test_a_server_that_is_new_or_began_again_has_no_rate() -> None:
    assert with_rates([], [LOOK])[0][1:] == (None, None)
    restarted = LOOK._replace(at_s=12.0, script_runs=3, cpu_s=0.1)
    assert with_rates([LOOK], [restarted])[0][1:] == (None, None)
    hidden = LOOK._replace(at_s=12.0, script_runs=None, cpu_s=6.0)
    assert with_rates([LOOK], [hidden])[0][1:] == (None, 0.5)


def test_the_lag_is_that_of_the_slowest_replica() -> None:
    replicas = {"slave0": {"offset": 900}, "slave1": {"offset": 400}}
    assert lag_of({"connected_slaves": 2, "master_repl_offset": 1_000, **replicas}) == 600
    assert lag_of({"connected_slaves": 0, "master_repl_offset": 1_000}) is None
    assert lag_of({}) is None
