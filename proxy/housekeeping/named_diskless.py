"""Classic topics whose name is one of a diskless topic: they were created without going through the proxies.

Terraform, Strimzi's Topic Operator and other tools may be connected to the brokers themselves. A topic that they create
is classic, whatever `default_diskless_topics` says of its name, and stays so. Nothing can be repaired here: the topic
may hold records. So it is reported.

Behaviour: topics with compaction are left out, as the proxies create them classic under such names, too. If the
proxy's principal may not read a topic's configs, the topic is reported all the same. The same holds for a topic that
was created with `diskless.enable=false` through a proxy: nothing on the brokers distinguishes it from the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import structlog

from proxy.brokers.broker_metadata import TOPICS_PER_STEP, ask_all_names
from proxy.brokers.cluster import Cluster
from proxy.brokers.topic_configs import ask_topic_configs
from proxy.process.turns import Turns
from proxy.protocol.cleanup_policy import CLEANUP_POLICY, is_compacted
from proxy.telemetry.throttled_log import NAMES_SHOWN
from proxy.topics.topic_configs import diskless_by_name
from proxy.wire.steps import Steps, in_slices

log = structlog.get_logger()

REMEDY = (
    "recreate the topic through a proxy, or leave its name out of default_diskless_topics if it is to be classic: "
    "docs/operations/past-the-proxies.md"
)


class NamedDiskless:
    """Looks for such topics, in the proxy that keeps house. `patterns` returns those of `default_diskless_topics`."""

    def __init__(
        self,
        cluster: Cluster,
        turns: Turns,
        *,
        patterns: Callable[[], Sequence[str]],
        is_registered: Callable[[str], bool],
    ) -> None:
        self._cluster = cluster
        self._turns = turns
        self._patterns = patterns
        self._is_registered = is_registered
        self.topics: tuple[str, ...] = ()
        """Their names at the last look, in the proxy that holds the lease."""

    async def look(self) -> tuple[str, ...]:
        """Look once, and log topics that were not there before. Raises BrokerUnreachable and ProtocolError."""
        found = await self.find()
        if news := sorted(set(found) - set(self.topics)):
            log.warning(
                "classic_topics_named_diskless",
                topics=news[:NAMES_SHOWN],
                count=len(news),
                reason="default_diskless_topics matches their names, and they were not created through a proxy",
                remedy=REMEDY,
            )
        self.topics = tuple(sorted(found))
        return self.topics

    async def find(self) -> list[str]:
        """Return the topics that exist now. Raises BrokerUnreachable and ProtocolError."""
        patterns = self._patterns()
        if not patterns:
            return []
        names = await ask_all_names(self._cluster.service, self._turns)
        found = await self._turns.do(_candidates(names, patterns, self._is_registered))
        compacted = await self._compacted(found)
        # A topic may have become diskless meanwhile: its name is registered before the brokers know it.
        return [name for name in found if name not in compacted and not self._is_registered(name)]

    def forget(self) -> None:
        """Another proxy looks from now on."""
        self.topics = ()

    async def _compacted(self, names: Sequence[str]) -> set[str]:
        """Return which of the topics are compacted, as far as the principal may read their configs."""
        compacted = set[str]()
        for start in range(0, len(names), TOPICS_PER_STEP):
            some = names[start : start + TOPICS_PER_STEP]
            policies = await ask_topic_configs(self._cluster.service, some, CLEANUP_POLICY)
            compacted |= {name for name, policy in policies.items() if is_compacted({CLEANUP_POLICY: policy})}
        return compacted


def _candidates(
    names: Sequence[str], patterns: Iterable[str], is_registered: Callable[[str], bool]
) -> Steps[list[str]]:
    """Return the names that the patterns match and the registry does not have."""
    found = list[str]()
    for some in in_slices(names):
        found += [name for name in some if diskless_by_name(name, patterns) and not is_registered(name)]
        yield
    return found
