"""Proof that the coordinator's store and object storage belong together and have lost nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from proxy.assembly.housekeeping_parts import HousekeepingParts
from proxy.assembly.process_parts import ProcessParts
from proxy.assembly.room import RoomParts, Work
from proxy.assembly.store_parts import StoreParts
from proxy.assembly.topic_parts import TopicParts
from proxy.guard.view_watch import ViewWatch
from proxy.guard.watch import StoreWatch


@dataclass(frozen=True, slots=True)
class GuardParts(RoomParts):
    """The watch of the store."""

    store_watch: StoreWatch | ViewWatch

    def background_on_store(self) -> Iterable[Work]:
        """Return the watch."""
        yield self.store_watch.keep_watching()


def build_guard(
    process: ProcessParts, stores: StoreParts, topics: TopicParts, housekeeping: HousekeepingParts
) -> GuardParts:
    """Build the parts; the store is not looked at yet."""
    housekeeper = housekeeping.housekeeper
    view, journal = stores.coordinator.view, stores.journal
    if view is not None and journal is not None:
        redis = process.settings.redis
        return GuardParts(
            store_watch=ViewWatch(redis, stores.store, stores.coordinator, view, journal, stores.storage, topics.topics)
        )
    return GuardParts(
        store_watch=StoreWatch(
            process.settings.redis,
            stores.store,
            stores.coordinator,
            stores.storage,
            topics.topics,
            lambda: housekeeper.holds_lease,
        )
    )
