"""Waiting until replicas and disks have a commit, before it is acknowledged (`redis.wait_replicas`, `redis.wait_aof`).

The command follows the script on the same connection. The server waits until the replicas have everything that it had
when the command came. So the wait also covers a commit that is repeated.
"""

from __future__ import annotations

from proxy import config
from proxy.coordinator.interface import CoordinatorUnavailable

Command = tuple[str | int, ...]


def wait_command(settings: config.Redis) -> Command:
    """Return the command to send after a commit; empty if nothing is to be waited for."""
    timeout_ms = max(1, settings.timeout_ms // 3)  # twice if the script has to be loaded first
    if settings.wait_aof:
        return "WAITAOF", 1, settings.wait_replicas, timeout_ms
    return ("WAIT", settings.wait_replicas, timeout_ms) if settings.wait_replicas else ()


def check_confirmed(command: Command, answer: int | list[int]) -> None:
    """Raise CoordinatorUnavailable if fewer servers than the command asks for have the commit."""
    local, replicas = (1, answer) if isinstance(answer, int) else answer
    *needed, timeout_ms = (int(number) for number in command[1:])
    if local < 1:
        raise CoordinatorUnavailable(
            f"the coordinator's store did not write a commit to its disk within {timeout_ms} ms; check whether "
            f"the disk is overloaded, or set redis.wait_aof to false"
        )
    if replicas < needed[-1]:
        raise CoordinatorUnavailable(
            f"{replicas} of {needed[-1]} replicas of the coordinator's store confirmed a commit within {timeout_ms} "
            "ms; attach replicas, check whether they lag, or lower redis.wait_replicas"
        )
