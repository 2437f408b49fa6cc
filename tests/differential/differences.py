"""Differences between answers, and those that are allowed: the list of docs/differences.md, each by its first words
there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.differential.operations import (
    MAX_TIMESTAMP,
    DescribeConfigs,
    Fetch,
    ListOffsets,
    LongPoll,
    OffsetForLeaderEpoch,
    Operation,
    Produce,
    Recreate,
)
from tests.differential.views import BATCHES, CUT, REWRITTEN

ABSENT = "not there"
WORDING = "Error messages have other words"
EPOCHS = "OffsetForLeaderEpoch returns the requested epoch and the high watermark"
WHOLE_BATCHES = "A Fetch of diskless partitions returns only whole batches"
UNKNOWN_IDS = "While a diskless topic is being created, a Produce with an unknown topic ID"
ENABLE = "DescribeConfigs of a topic shows `diskless.enable`"
MIN_ISR = "DescribeConfigs of a diskless topic shows `min.insync.replicas` 1"
SEVERAL = "If a request has several errors, the answer may have another one"
LOG_START = "An error of Produce comes with log start offset -1"
LAGS = "A Fetch that is served from a proxy's memory may miss"
"""Difference for which a request is repeated until the answer shows the newest state."""
DELETED_MAXIMUM = "ListOffsets of the maximum timestamp (-3) considers only existing records"
CODECS = "A batch with an unknown codec"
DOCUMENTED = (
    WORDING,
    EPOCHS,
    WHOLE_BATCHES,
    UNKNOWN_IDS,
    CODECS,
    ENABLE,
    MIN_ISR,
    SEVERAL,
    LOG_START,
    DELETED_MAXIMUM,
    LAGS,
)
LEFT_OUT = (
    "A producer that an empty log does not know",
    "Bytes after the end of a batch",
    "A batch with a producer ID and no epoch",
    "a batch whose header sets LogAppendTime",
    "A Produce with null records",
    "A batch with an invalid length or codec fails alone",
)
"""Differences that are never generated, because the logs would differ from then on."""

UNKNOWN_SERVER_ERROR, KAFKA_STORAGE_ERROR, UNSUPPORTED_COMPRESSION_TYPE, UNKNOWN_TOPIC_ID = -1, 56, 76, 100
_FIRST_ZSTD_VERSION = 7
_NOWHERE = 1_000_000


class Difference(NamedTuple):
    """One field that differs."""

    path: tuple[str | int, ...]
    classic: Any
    diskless: Any


def differences(operation: Operation, classic: Any, diskless: Any) -> list[Difference]:
    """Return the differences that are not allowed."""
    if isinstance(operation, Recreate) and isinstance(classic, dict) and isinstance(diskless, dict):
        found = [
            difference._replace(path=("meanwhile", place, *difference.path))
            for place, (asked, *answers) in enumerate(
                zip(operation.meanwhile, classic["meanwhile"], diskless["meanwhile"], strict=True)
            )
            for difference in differences(asked, *answers)
        ]
        rest = [{key: value for key, value in one.items() if key != "meanwhile"} for one in (classic, diskless)]
        return found + list(_unequal(*rest))
    if isinstance(operation, LongPoll):
        return [
            difference._replace(path=(name, *difference.path))
            for name, asked in (("produced", operation.produce), ("fetched", operation.fetch))
            for difference in differences(asked, classic[name], diskless[name])
        ]
    return [
        one
        for one in _unequal(classic, diskless)
        if not any(is_allowed(operation, one, classic) for is_allowed in _ALLOWED)
    ]


def _unequal(classic: Any, diskless: Any, path: tuple[str | int, ...] = ()) -> Iterator[Difference]:
    """Yield all unequal fields; a list of batches counts as one field."""
    if isinstance(classic, dict) and isinstance(diskless, dict):
        for key in dict.fromkeys((*classic, *diskless)):
            yield from _unequal(classic.get(key, ABSENT), diskless.get(key, ABSENT), (*path, key))
    elif (
        isinstance(classic, list)
        and isinstance(diskless, list)
        and len(classic) == len(diskless)
        and path[-1:] != (BATCHES,)
    ):
        for place, (one, other) in enumerate(zip(classic, diskless, strict=True)):
            yield from _unequal(one, other, (*path, place))
    elif classic != diskless:
        yield Difference(path, classic, diskless)


def _cut_place(operation: Operation, answer: Any) -> int:
    """Return the place in the request of the first partition whose answer by the broker ends with a cut batch."""
    if not isinstance(operation, Fetch) or not isinstance(answer, dict):
        return _NOWHERE
    partitions = [one for topic in answer["responses"] for one in topic["partitions"]]
    cut = {one["partition_index"] for one in partitions if one[CUT]}
    return next((place for place, one in enumerate(operation.asked) if one.partition in cut), _NOWHERE)


def _wording(operation: Operation, one: Difference, answer: Any) -> bool:
    """Allow a different text, or a text that the broker lacks, but not a missing text."""
    texts = ("error_message", "batch_index_error_message")
    return one.path[-1] in texts and isinstance(one.diskless, str) and one.diskless != ABSENT


def _epochs(operation: Operation, one: Difference, answer: Any) -> bool:
    """Allow epochs that a classic topic has not had: they are answered like the only one."""
    if not isinstance(operation, OffsetForLeaderEpoch) or one.path[-1] not in ("leader_epoch", "end_offset"):
        return False
    _, epoch = sorted(operation.asked)[int(one.path[-2])]
    return epoch != 0 and (one.path[-1] == "end_offset" or one.diskless == epoch)


def _whole_batches(operation: Operation, one: Difference, answer: Any) -> bool:
    """Allow that a broker cuts the last batch, which no client uses; later partitions may then get less of the
    limit."""
    if not isinstance(operation, Fetch):
        return False
    if one.path[-1] == CUT:
        return bool(one.diskless == 0)
    if one.path[-1] != BATCHES or any(batch.length == REWRITTEN for batch in one.diskless):
        return False
    asked = sorted(operation.asked)[int(one.path[-2])]
    within = sum(batch.length for batch in one.diskless) <= min(asked.max_bytes, operation.max_bytes)
    more = bool(one.diskless[: len(one.classic)] == one.classic)
    return within and more and operation.asked.index(asked) > _cut_place(operation, answer)


def _unknown_ids(operation: Operation, one: Difference, answer: Any) -> bool:
    """Allow that a proxy cannot know whether an ID is that of a placeholder topic that is being created."""
    codes = (UNKNOWN_TOPIC_ID, KAFKA_STORAGE_ERROR)
    return isinstance(operation, Produce) and operation.version >= operation.FIRST_ID_VERSION and one[1:] == codes


def _several(operation: Operation, one: Difference, answer: Any) -> bool:
    """Allow another error for a batch in zstd of a version without zstd, if the batch has a second error."""
    if not isinstance(operation, Produce) or operation.version >= _FIRST_ZSTD_VERSION:
        return False
    for step in one.path[:-1]:
        answer = answer[step]
    code = answer.get("error_code") if isinstance(answer, dict) else None
    return code == UNSUPPORTED_COMPRESSION_TYPE and (
        one.path[-1] == "record_errors" or (one.path[-1] == "error_code" and one.diskless != 0)
    )


def _log_start(operation: Operation, one: Difference, answer: Any) -> bool:
    """Allow another log start in an error: a client's reaction does not depend on it."""
    if not isinstance(operation, Produce) or one.path[-1] != "log_start_offset":
        return False
    for step in one.path[:-1]:
        answer = answer[step]
    return bool(answer["error_code"] != 0)


def _deleted_maximum(operation: Operation, one: Difference, answer: Any) -> bool:
    """Allow that a broker uses its segment's maximum, whose record may be deleted already."""
    if not isinstance(operation, ListOffsets) or "log starts" not in answer or "partitions" not in one.path:
        return False
    place = int(one.path[-2])
    partition, asked = sorted(operation.asked)[place]
    found = answer["topics"][0]["partitions"][place]
    return asked == MAX_TIMESTAMP and found["error_code"] == 0 and found["offset"] < answer["log starts"][partition]


def _own_configs(operation: Operation, one: Difference, answer: Any) -> bool:
    """Allow that a diskless topic has one more config, and reports one config in its own way."""
    if not isinstance(operation, DescribeConfigs) or one.path[-1] != "configs":
        return False
    diskless = [config for config in one.diskless if config["name"] != "diskless.enable"]
    min_isr = [config["value"] for config in diskless if config["name"] == "min.insync.replicas"]
    return set(min_isr) <= {"1"} and _without_min_isr(diskless) == _without_min_isr(one.classic)


def _without_min_isr(configs: list[dict[str, Any]]) -> list[dict[str, Any] | str]:
    return ["" if config["name"] == "min.insync.replicas" else config for config in configs]


def _codecs(operation: Operation, one: Difference, answer: Any) -> bool:
    return isinstance(operation, Produce) and one[1:] == (UNKNOWN_SERVER_ERROR, UNSUPPORTED_COMPRESSION_TYPE)


_ALLOWED: tuple[Callable[[Operation, Difference, int], bool], ...] = (
    _wording,
    _epochs,
    _whole_batches,
    _unknown_ids,
    _codecs,
    _own_configs,
    _several,
    _log_start,
    _deleted_maximum,
)
