"""The gate: a client is read exactly while no cause keeps it closed, and some work continues without the client."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.connection.gate import (
    ANSWERS_WAIT,
    BARRIER,
    BROKER_FULL,
    CAUSES,
    CLIENT_FULL,
    CONNECTING,
    ENDING,
    IN_FLIGHT,
    MEMORY,
    THROTTLED,
    Gate,
)

STEPS = st.lists(st.tuples(st.booleans(), st.sampled_from(sorted(CAUSES))))


def gate_of(*causes: int) -> Gate:
    gate = Gate()
    gate.resume(CONNECTING)
    for cause in causes:
        gate.pause(cause)
    return gate


def test_every_cause_is_a_bit_of_its_own() -> None:
    assert sorted(CAUSES) == [1 << number for number in range(len(CAUSES))]


@given(STEPS)
def test_the_gate_opens_when_the_last_cause_is_gone(steps: list[tuple[bool, int]]) -> None:
    gate, causes = Gate(), {CONNECTING}
    for pauses, cause in steps:
        if pauses:
            gate.pause(cause)
            causes.add(cause)
        else:
            assert gate.resume(cause) is (cause in causes)
            causes.discard(cause)
        assert gate.reads(False) == (not causes)
        assert gate.reads(True) == (not causes & {CONNECTING, BROKER_FULL})


@pytest.mark.parametrize("cause", [CONNECTING, BROKER_FULL])
def test_without_room_at_the_broker_not_even_the_rest_of_a_request_is_read(cause: int) -> None:
    assert not gate_of(cause).reads(True)


@pytest.mark.parametrize("cause", sorted(CAUSES.keys() - {CONNECTING, BROKER_FULL}))
def test_every_other_cause_lets_a_request_through_to_its_end(cause: int) -> None:
    assert gate_of(cause).reads(True)
    assert not gate_of(cause).reads(False)


@pytest.mark.parametrize("cause", [CONNECTING, MEMORY, BROKER_FULL, THROTTLED])
def test_causes_that_end_by_themselves_keep_requests_of_a_client_that_has_left(cause: int) -> None:
    assert gate_of(cause).opens_alone(kept_back=True, granted=False, stopped=True)
    assert not gate_of(cause).opens_alone(kept_back=False, granted=False, stopped=True), "there are none"


@pytest.mark.parametrize("cause", [ENDING, CLIENT_FULL, IN_FLIGHT, ANSWERS_WAIT])
@pytest.mark.parametrize("with_cause", [MEMORY, THROTTLED])
def test_causes_that_need_the_client_drop_its_requests(cause: int, with_cause: int) -> None:
    """Also next to a cause that ends by itself, and with the memory of the next request."""
    for granted in (False, True):
        assert not gate_of(cause, with_cause).opens_alone(kept_back=True, granted=granted, stopped=True)


def test_requests_that_go_on_in_the_next_step_are_kept() -> None:
    assert gate_of().opens_alone(kept_back=True, granted=False, stopped=True)
    assert not gate_of().opens_alone(kept_back=True, granted=False, stopped=False), "half a request, and no more comes"
    assert gate_of(BARRIER).opens_alone(kept_back=True, granted=True, stopped=True), "it has its memory"
