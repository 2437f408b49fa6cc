"""Ports: one holder each, workers aside, from the moment they are bound."""

from __future__ import annotations

import socket
import sys

import pytest

from proxy.config import Settings
from proxy.process.ports import HeldPorts, StartError, bind_all
from tests.support.ports import free_port

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets workers share ports")


def settings_of(**listeners):
    bootstrap, broker = free_port(), free_port(in_a_row=5)
    ports = {"bootstrap_port": bootstrap, "broker_port_start": broker - 1, "broker_node_ids": "1"}
    return Settings(
        rack="rack-a",
        listeners=ports | listeners,
        brokers={"bootstrap": ["127.0.0.1:9092"]},
        redis={"url": "redis://127.0.0.1:6379/0"},
        storage={"url": "file:///nowhere"},
    )


def close(bound):
    for one in bound:
        one.socket.close()


def test_one_socket_for_each_port_that_does_not_listen_yet():
    settings = settings_of()
    bound = bind_all(settings)
    try:
        assert [(one.node_id, one.setting) for one in bound] == [
            (None, "listeners.bootstrap_port"),
            (1, "listeners.broker_port_start + 1"),
        ]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", settings.listeners.bootstrap_port), timeout=5)
    finally:
        close(bound)


def test_a_port_that_is_listened_to_is_named_and_nothing_stays_bound():
    settings = settings_of()
    with socket.socket() as other:
        other.bind(("127.0.0.1", settings.listeners.ports[1]))
        other.listen()
        with pytest.raises(StartError, match=rf":{settings.listeners.ports[1]} \(listeners.broker_port_start \+ 1\)"):
            bind_all(settings)
    close(bind_all(settings))


@linux
def test_workers_listen_side_by_side_under_a_parent_that_holds_the_ports():
    settings = settings_of()
    held = HeldPorts(settings)
    first, second = bind_all(settings, shared=True), bind_all(settings, shared=True)
    try:
        for one in (*first, *second):
            one.socket.listen()
        close(first)
        socket.create_connection(("127.0.0.1", settings.listeners.bootstrap_port), timeout=5).close()
    finally:
        close(first)
        close(second)
        held.release()


@linux
@pytest.mark.parametrize("listening", [False, True])
def test_two_parents_never_hold_the_same_port(listening):
    settings = settings_of()
    held = HeldPorts(settings)
    bound = bind_all(settings, shared=True)
    try:
        if listening:
            for one in bound:
                one.socket.listen()
        with pytest.raises(StartError, match="Address already in use; end the process that holds the port"):
            HeldPorts(settings)
    finally:
        close(bound)
        held.release()
    HeldPorts(settings).release()


@linux
def test_a_proxy_without_workers_is_kept_off_the_ports_of_one_with_workers():
    settings = settings_of()
    held = HeldPorts(settings)
    bound = bind_all(settings, shared=True)
    try:
        for one in bound:
            one.socket.listen()
        with pytest.raises(StartError, match="Address already in use"):
            bind_all(settings)
    finally:
        close(bound)
        held.release()
