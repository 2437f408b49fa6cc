"""The guard's calls to the shards: compare the store with its known state, and continue after an accepted loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proxy import config
from proxy.coordinator import packing_state
from proxy.coordinator.carrying import Refused, StoreTrust
from proxy.coordinator.clock import running_ms
from proxy.coordinator.packing_state import ShardLook, ShardState, Unfenced
from proxy.coordinator.shard_calls import ShardCalls
from proxy.coordinator.shards import partition_key


class ShardStates:
    """Compares the store's shards with what is known of them, and keeps calls off a store that can't be trusted."""

    def __init__(self, calls: ShardCalls, trust: StoreTrust, settings: config.Redis) -> None:
        self._calls = calls
        self._trust = trust
        self._settings = settings
        self._store_ahead_ms: int | None = None
        """Milliseconds that the store's clock is ahead of `running_ms`; None before the first answer."""

    def refuse_writes(self, why: str | None) -> None:
        """Reject every write as long as the store can't be trusted with writes; None ends that."""
        self._trust.unfit = why

    def refuse_all(self, why: str | None) -> None:
        """Reject reads too, as long as the store has another deployment's data, or an unknown layout; None ends
        that."""
        self._trust.closed = why

    @property
    def command_rejected(self) -> bool:
        """True if the store has rejected a command of a script since `commands_tried`."""
        return self._trust.command_rejected

    def commands_tried(self) -> None:
        """Note that the store lets its user run every command."""
        self._trust.command_rejected = False

    def expect_identity(self, identity: str) -> None:
        """Set the name of the store (32 hex digits): known states are not held against a store of another name."""
        self._trust.identity = bytes.fromhex(identity)

    def store_time_ms(self) -> int | None:
        """Return the store's time in ms since 1970, known from the last answer to `touch` or `look`; else None."""
        return None if self._store_ahead_ms is None else self._store_ahead_ms + running_ms()

    def deadline_ms(self, within_ms: int) -> int | None:
        """Return the store's time so much later than now; None if it is not known yet."""
        now_ms = self.store_time_ms()
        return None if now_ms is None else now_ms + within_ms

    async def look(self, known: Mapping[int, ShardState] | None = None) -> list[ShardLook]:
        """Return the state of each shard, fenced or not; nothing is changed by it.

        `known`: the states to compare with, by shard; those that this process knows if None.
        """
        sent_ms = running_ms()
        replies = await self._calls.call("state", [(shard, ()) for shard in range(self._settings.shards)], known=known)
        looks = [
            packing_state.unpack_look(self._calls.must_answer("state", shard, reply))
            for shard, reply in enumerate(replies)
        ]
        self._note_times(looks, sent_ms)
        return looks

    async def touch(self, shards: Sequence[int]) -> None:
        """Compare what this process knows with these shards; a shard that has less is fenced, for all proxies."""
        sent_ms = running_ms()
        replies = await self._calls.call("touch", [(shard, ()) for shard in shards])
        self._note_times([packing_state.unpack_look(reply) for reply in replies if isinstance(reply, bytes)], sent_ms)

    async def missing(self, states: Mapping[int, ShardState]) -> set[int]:
        """Compare states that others knew with their shards, as `touch` does; return shards that may not have them."""
        replies = await self._calls.call("touch", [(shard, ()) for shard in states], known=states)
        return {shard for shard, reply in zip(states, replies, strict=True) if isinstance(reply, Refused)}

    async def unfence(self, shard: int, gap: int, logs: Sequence[tuple[bytes, int]]) -> Unfenced:
        """Give up what a shard has lost, and let it go on; all proxies follow by themselves.

        The loss is everything that proxies have reported, and what this process knows. `gap`: more offsets that may
        have been given. `logs`: the logs (topic ID, partition) that must exist in the shard.
        """
        keys = b"".join(partition_key(topic_id, partition) for topic_id, partition in logs)
        (reply,) = await self._calls.call("unfence", [(shard, (gap.to_bytes(8, "big"), keys))])
        return packing_state.unpack_unfenced(self._calls.must_answer("unfence", shard, reply))

    def _note_times(self, looks: Sequence[ShardLook], sent_ms: int) -> None:
        if looks:
            # As of before the call: an estimate that is too low refuses a commit early rather than late.
            self._store_ahead_ms = min(look.time_ms for look in looks) - max(running_ms(), sent_ms)
