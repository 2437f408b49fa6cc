"""A proxy with a bug: `planted.py NAME run --config FILE`, like `diskless-proxy run`.

It proves that the comparison finds such a bug. The bugs replace methods of the imported product; the product itself
does not know them.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

from proxy.coordinator.interface import DeleteRequest, ListRequest, LogStart, RunAnswer
from proxy.coordinator.redis import RedisCoordinator
from proxy.diskless.diskless_reader import DisklessReader, PartitionRead, ReadRequest
from proxy.diskless.time_lookup import TimeLookup

OFFSET_OUT_OF_RANGE = 1


def _over(owner: type, name: str) -> Callable[[Callable[..., Any]], None]:
    """Replace a method by one that gets the original as its first argument."""

    def put(method: Callable[..., Any]) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        async def planted(*arguments: Any, **more: Any) -> Any:
            return await method(original, *arguments, **more)

        setattr(owner, name, planted)

    return put


def duplicate_offset() -> None:
    """Answer an exact duplicate with the offset after its own."""

    @_over(RedisCoordinator, "commit")
    async def commit(original: Any, *arguments: Any, **more: Any) -> list[RunAnswer]:
        answers: list[RunAnswer] = await original(*arguments, **more)
        return [
            run._replace(
                batches=tuple(one._replace(base_offset=one.base_offset + one.duplicate) for one in run.batches)
            )
            for run in answers
        ]


def time_lookup() -> None:
    """Let a lookup by time find only later records."""

    @_over(TimeLookup, "list_offsets")
    async def list_offsets(original: Any, self: Any, requests: Sequence[ListRequest], *more: Any, **others: Any) -> Any:
        later = [one._replace(timestamp_ms=one.timestamp_ms + (one.timestamp_ms >= 0)) for one in requests]
        return await original(self, later, *more, **others)


def watermark() -> None:
    """Return too low a high watermark to a reader at the end."""

    @_over(DisklessReader, "read")
    async def read(original: Any, *arguments: Any, **more: Any) -> list[PartitionRead]:
        reads: list[PartitionRead] = await original(*arguments, **more)
        return [
            one if one.size_bytes or one.high_watermark < 1 else one._replace(high_watermark=one.high_watermark - 1)
            for one in reads
        ]


def byte_limit() -> None:
    """Make a partition's limit one byte larger."""

    @_over(DisklessReader, "read")
    async def read(original: Any, self: Any, requests: Sequence[ReadRequest], **more: Any) -> Any:
        return await original(self, [one._replace(max_bytes=one.max_bytes + 1) for one in requests], **more)


def delete_bound() -> None:
    """Accept one offset beyond the high watermark."""

    @_over(RedisCoordinator, "delete_records")
    async def delete_records(original: Any, self: Any, requests: Sequence[DeleteRequest]) -> list[LogStart]:
        answers: list[LogStart] = await original(self, requests)
        for place, (request, answer) in enumerate(zip(requests, answers, strict=True)):
            if answer.error_code == OFFSET_OUT_OF_RANGE and request.before_offset > 0:
                fewer = request._replace(before_offset=request.before_offset - 1)
                (answers[place],) = await original(self, [fewer])
        return answers


BUGS: dict[str, Callable[[], None]] = {
    "duplicate-offset": duplicate_offset,
    "time-lookup": time_lookup,
    "watermark": watermark,
    "byte-limit": byte_limit,
    "delete-bound": delete_bound,
}

if __name__ == "__main__":
    from proxy.cli import main

    BUGS[sys.argv.pop(1)]()
    main()
