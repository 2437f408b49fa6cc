import contextlib
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.demo.ports import HOST
from proxy.demo.probe import ProbeFailed, known_brokers


def answer_with(response: bytes) -> dict[int, str]:
    """Return the probe's result for a server that sends `response` and closes the connection."""
    with socket.create_server((HOST, 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(response)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            return known_brokers(HOST, server.getsockname()[1], timeout_seconds=5.0)
        finally:
            thread.join()


def test_brokers_with_and_without_a_rack_are_read() -> None:
    body = (
        b"\0\0\0\1\0\0\0\2"  # correlation ID, two brokers
        b"\0\0\0\7\0\4host\0\0\x23\x84\0\6rack-a"
        b"\0\0\0\x09\0\4host\0\0\x23\x85\xff\xff"
        b"\0\0\0\7\0\0\0\0"  # controller, no topic
    )
    assert answer_with(len(body).to_bytes(4) + body) == {7: "rack-a", 9: ""}


@given(st.binary(max_size=64))
def test_an_answer_of_another_kind_raises_nothing_but_the_one_error(response: bytes) -> None:
    for answer in (response, len(response).to_bytes(4) + response):
        with contextlib.suppress(ProbeFailed):
            answer_with(answer)


def test_nobody_listening_is_the_one_error() -> None:
    with socket.socket() as bound:
        bound.bind((HOST, 0))
        with pytest.raises(ProbeFailed, match="refused"):
            known_brokers(HOST, bound.getsockname()[1], timeout_seconds=5.0)
