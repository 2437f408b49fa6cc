"""Requests of a fetch session, against a broker's side of it (`FetchSession.scala`)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.markers.messages import Fetched, Place, Session
from proxy.markers.session import FetchSession
from proxy.protocol.errors import FETCH_SESSION_ID_NOT_FOUND, NONE

LOGS = [(bytes([number]) * 16, number % 3) for number in range(6)]
SESSION_ID = 77


class BrokerSession:
    """A broker's side: it rejects what is not of its session, and otherwise reads the partitions that it knows."""

    def __init__(self) -> None:
        self.epoch = -1
        self.known: dict[tuple[bytes, int], Place] = {}

    def fetch(self, named: list[Place], session: Session) -> Fetched:
        if session.epoch == 0:
            self.epoch, self.known = 0, {}
        elif (session.session_id, session.epoch) != (SESSION_ID, self.epoch):
            return Fetched(FETCH_SESSION_ID_NOT_FOUND, 0, 0, {})
        self.epoch += 1
        for log in session.forgotten:
            del self.known[log]
        self.known.update((place.log, place) for place in named)
        return Fetched(NONE, SESSION_ID, 0, {})


wanted = st.dictionaries(st.sampled_from(LOGS), st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=6)


@given(st.lists(st.tuples(wanted, st.sampled_from(["answered", "lost", "evicted"])), max_size=12))
def test_the_broker_reads_exactly_the_wanted_partitions(rounds: list[tuple[dict, str]]) -> None:
    """Also after an answer was lost, or the broker has dropped the session; then at the next request but one."""
    broker, session = BrokerSession(), FetchSession()
    for places, what_happens in rounds:
        asked = {log: Place(log, *place) for log, place in places.items()}
        answer = broker.fetch(*session.request(asked))
        if answer.error_code != NONE:
            session.answered(answer)
            answer = broker.fetch(*session.request(asked))
        assert answer.error_code == NONE
        assert broker.known == asked
        if what_happens == "lost":
            session.reset()
        else:
            session.answered(answer)
        if what_happens == "evicted":
            broker.epoch = -1


def test_an_unchanged_partition_is_named_once() -> None:
    session, place = FetchSession(), Place(LOGS[0], 5, 1)
    assert session.request({LOGS[0]: place}) == ([place], Session(0, 0))
    session.answered(Fetched(NONE, SESSION_ID, 0, {}))
    assert session.request({LOGS[0]: place}) == ([], Session(SESSION_ID, 1))
    session.answered(Fetched(NONE, SESSION_ID, 0, {}))
    assert session.request({}) == ([], Session(SESSION_ID, 2, (LOGS[0],)))


def test_a_broker_without_room_for_a_session_gets_everything_each_time() -> None:
    session, place = FetchSession(), Place(LOGS[0], 5, 1)
    for _ in range(2):
        assert session.request({LOGS[0]: place}) == ([place], Session(0, 0))
        session.answered(Fetched(NONE, 0, 0, {}))
