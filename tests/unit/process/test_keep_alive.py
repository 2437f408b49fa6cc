"""Sockets with TCP keep-alive, which checks whether the other side still exists."""

from __future__ import annotations

import socket

from proxy.config import Limits
from proxy.process.keep_alive import keep_alive


def test_accepted_sockets_inherit_the_keep_alive_of_their_listener():
    limits = Limits(tcp_keepalive_idle_s=33, tcp_keepalive_interval_s=7, tcp_keepalive_probes=4)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        keep_alive(listener, limits)
        with socket.create_connection(listener.getsockname()):
            accepted, _ = listener.accept()
            with accepted:
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
                assert [accepted.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [33, 7, 4]
