"""`cleanup.policy` of a topic: whether its old records go by retention, by compaction, by both, or not at all."""

from __future__ import annotations

from collections.abc import Mapping

COMPACT, DELETE = "compact", "delete"
CLEANUP_POLICY = "cleanup.policy"


def cleanup_policies(configs: Mapping[str, str | None]) -> tuple[str, ...]:
    """Return the policies in a topic's configs, in the order in which they are written; Kafka's default if not set.

    An empty list is allowed, and means that everything is kept. Duplicates count once.
    """
    listed = configs.get(CLEANUP_POLICY)
    named = (one.strip() for one in (DELETE if listed is None else listed).split(","))
    return tuple(dict.fromkeys(one for one in named if one))


def is_compacted(configs: Mapping[str, str | None]) -> bool:
    """Return whether the last record of each key is kept, and earlier ones go."""
    return COMPACT in cleanup_policies(configs)


def is_deleted_from(configs: Mapping[str, str | None]) -> bool:
    """Return whether `retention.ms` and `retention.bytes` hold."""
    return DELETE in cleanup_policies(configs)
