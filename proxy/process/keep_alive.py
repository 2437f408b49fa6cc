"""TCP keepalive: a peer whose machine or network is gone sends no end of its connection, so it is asked now and then.

Brokers and clients set SO_KEEPALIVE too, but leave the times to the operating system: two hours until the first probe.
"""

from __future__ import annotations

import socket

from proxy.config import Limits


def keep_alive(one: socket.socket, limits: Limits) -> None:
    """Set it on a socket; on a listening one for all that it accepts, so that nothing is left to do per connection."""
    one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", limits.tcp_keepalive_idle_s),
        ("TCP_KEEPINTVL", limits.tcp_keepalive_interval_s),
        ("TCP_KEEPCNT", limits.tcp_keepalive_probes),
    ):
        option = getattr(socket, name, None)
        if option is not None:  # macOS calls the first of them by another name
            one.setsockopt(socket.IPPROTO_TCP, option, value)
