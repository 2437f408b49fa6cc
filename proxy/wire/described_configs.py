"""The answer to DescribeConfigs v1 to v4, cut at its results: those of some topics change, the rest is copied.

A result has some forty configs, and most topics have the same ones. So a result whose configs are the same bytes as
those of a recent result is not walked again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from kio.index import load_response_schema

from proxy.protocol.api_keys import DESCRIBE_CONFIGS
from proxy.wire.cold import nested
from proxy.wire.cold_lengths import Walk
from proxy.wire.primitives import (
    INT16,
    Buffer,
    check_end,
    read_count,
    read_nullable_string,
    read_string,
    skip_string,
    skip_tags,
)
from proxy.wire.steps import Pausing

_LOWEST, _HIGHEST, _FLEXIBLE_FROM = 1, 4, 4
_THROTTLE_BYTES = 4
_RECENT = 8
_MOST_BYTES = 32_768
"""Size of the largest configs that are kept."""


class Described(NamedTuple):
    """One result of an answer."""

    error_code: int
    resource_type: int
    name: str
    head: memoryview
    """The result up to its configs."""
    configs: bytes
    """The rest of it."""

    def whole(self) -> bytes:
        """Return all of the result, as kio reads it."""
        return b"".join((self.head, self.configs))


class RecentConfigs:
    """The configs of the last results that were walked, newest first."""

    def __init__(self) -> None:
        self._recent: list[bytes] = []

    def skip(self, version: int, data: memoryview, at: int) -> int:
        """Return the position after the result that begins at a position."""
        flexible = version >= _FLEXIBLE_FROM
        start, at = at, skip_string(data, at + 2, flexible) + 1
        at = skip_string(data, at, flexible)
        configs = self.at(data, at)
        if configs is not None:
            return at + len(configs)
        end = Walk(data, False).skip_entity(start, result_type(version))
        check_end(data, end)
        self.add(bytes(data[at:end]))
        return end

    def at(self, data: memoryview, at: int) -> bytes | None:
        """Return the configs that begin at this position, if they are among those."""
        for index, configs in enumerate(self._recent):
            if data[at : at + len(configs)] == configs:
                if index:
                    self._recent.insert(0, self._recent.pop(index))
                return configs
        return None

    def add(self, configs: bytes) -> None:
        """Keep configs that were walked."""
        if len(configs) <= _MOST_BYTES:
            self._recent.insert(0, configs)
            del self._recent[_RECENT:]


def result_type(version: int) -> Any:
    """Return kio's type of a result."""
    return nested(load_response_schema(DESCRIBE_CONFIGS, version), "results")


def _rewrite(
    body: Buffer, version: int, recent: RecentConfigs, change: Callable[[Described], Buffer | None]
) -> Generator[None, None, list[Buffer]]:
    """Return the answer with the results that `change` returns; None keeps a result as it is.

    Raises ProtocolError, also if `change` does.
    """
    flexible, kind = version >= _FLEXIBLE_FROM, result_type(version)
    data = memoryview(body)
    count, at = read_count(data, _THROTTLE_BYTES, flexible)
    parts: list[Buffer] = [data[:at]]
    for _ in range(count):
        start = at
        (error_code,) = INT16.unpack_from(data, at)
        _, at = read_nullable_string(data, at + 2, flexible)
        resource_type = data[at]
        name, at = read_string(data, at + 1, flexible)
        head_end, configs = at, recent.at(data, at)
        if configs is None:
            yield
            at = Walk(data, False).skip_entity(start, kind)
            check_end(data, at)
            configs = bytes(data[head_end:at])
            recent.add(configs)
        else:
            at += len(configs)
        changed = change(Described(error_code, resource_type, name, data[start:head_end], configs))
        parts.append(data[start:at] if changed is None else changed)
    end = skip_tags(data, at) if flexible else at
    check_end(data, end)
    parts.append(data[at:end])
    return parts


rewrite_described = Pausing(_rewrite)
"""Rewrite an answer, with pauses; see `_rewrite`."""
