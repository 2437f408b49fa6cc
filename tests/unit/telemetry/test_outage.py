"""Failures that are logged once until the work succeeds again."""

from __future__ import annotations

from proxy.telemetry.outage import Outage


def test_only_the_first_failure_since_a_success_begins_an_outage() -> None:
    outage = Outage()
    assert not outage.ends()
    assert [outage.begins(), outage.begins()] == [True, False]
    assert [outage.ends(), outage.ends()] == [True, False]
    assert outage.begins()


def test_each_subject_fails_and_recovers_for_itself() -> None:
    outage = Outage()
    assert outage.begins(1)
    assert outage.begins(2)
    assert outage.ends(1)
    assert not outage.begins(2)
    assert outage.begins(1)
