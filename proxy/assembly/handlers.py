"""The handlers of all APIs that are rewritten or intercepted, each with the parts that it needs."""

from __future__ import annotations

from proxy.assembly.parts import Parts
from proxy.handlers import HANDLERS, Handler, check_handlers
from proxy.handlers.create_partitions import CreatePartitions
from proxy.handlers.create_topics import CreateTopics
from proxy.handlers.in_parts import Spread, in_parts


def build_handlers(parts: Parts) -> dict[int, Handler]:
    """Build the handlers by API key. Raises AssertionError unless they are those that the table of APIs wants."""
    creation, topics = parts.creation, parts.topics.topics
    create_topics = CreateTopics(
        parts.process.settings,
        topics=topics,
        under_replicated=creation.under_replicated,
        creator=creation.topic_creator,
    )
    create_partitions = CreatePartitions(
        topics=topics, reservations=creation.reservations, growth=creation.partition_growth
    )
    handlers: dict[int, Handler] = HANDLERS | {
        19: in_parts(create_topics.create_topics, Spread(("topics",), "topics", cuts_elements=False, once=True)),
        37: in_parts(
            create_partitions.create_partitions, Spread(("topics",), "results", cuts_elements=False, once=True)
        ),
    }
    check_handlers(handlers)
    return handlers
