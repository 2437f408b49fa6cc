"""The bugs, by room. Each is a mistake that would cost users something, and that looks harmless in a review."""

from __future__ import annotations

from tests.planted.journal_bugs import JOURNAL_BUGS
from tests.planted.plant import Bug
from tests.planted.transaction_bugs import TRANSACTION_BUGS

_JUDGE = ("tests/unit/judge/test_findings.py", "tests/unit/judge/test_clean.py", "tests/unit/judge/test_planted.py")

BUGS: tuple[Bug, ...] = (
    # wire, records, protocol
    Bug(
        "a frame that ends exactly at the end of a read is cut",
        "proxy/wire/frames.py",
        "        if len(data) < missing:\n",
        "        if len(data) <= missing:\n",
        ("tests/unit/wire/test_frames.py",),
    ),
    Bug(
        "the fourth byte of a varint is shifted by the bits of the third",
        "proxy/wire/primitives.py",
        "    value += (byte - 1) << 21\n",
        "    value += (byte - 1) << 14\n",
        ("tests/unit/wire/test_primitives.py",),
    ),
    Bug(
        "an array may claim more elements than the message has bytes",
        "proxy/wire/primitives.py",
        "    if count < -1 or count > len(data) - at:\n",
        "    if count < -1:\n",
        ("tests/unit/wire/test_cold.py",),
    ),
    Bug(
        "the last batch of a run keeps its own base offset",
        "proxy/diskless/cache.py",
        "        batches = patch_offsets(run, row.base_offset, self._leader_epoch, log_append_time_ms)\n",
        "        batches = patch_offsets(run, row.base_offset + 1, self._leader_epoch, log_append_time_ms)\n",
        ("tests/unit/diskless/test_cache.py",),
    ),
    # diskless: the WAL, the cache, coordinates
    Bug(
        "a segment is committed before its upload has ended",
        "proxy/diskless/wal/buffer.py",
        "            built = await self.hedge.upload(built)\n",
        "            self._late = asyncio.ensure_future(self.hedge.upload(built))\n",
        ("tests/unit/diskless/wal/test_buffer.py",),
    ),
    Bug(
        "segments of the same partition are committed in the order of their uploads",
        "proxy/diskless/wal/buffer.py",
        "            earlier.number < segment.number and not earlier.waiting.keys().isdisjoint(segment.waiting)\n",
        "            False and not earlier.waiting.keys().isdisjoint(segment.waiting)\n",
        ("tests/unit/diskless/wal/test_buffer.py",),
    ),
    Bug(
        "a batch that nobody knows the fate of is answered as surely not stored",
        "proxy/diskless/wal/buffer.py",
        "                error_code = REQUEST_TIMED_OUT\n                await",
        "                error_code = KAFKA_STORAGE_ERROR\n                await",
        ("tests/unit/diskless/wal/test_buffer.py",),
    ),
    Bug(
        "a batch that follows a failed one of its producer is stored",
        "proxy/diskless/wal/failures.py",
        "        return _is_after(base_sequence, failed_sequence)\n",
        "        return False\n",
        ("tests/unit/diskless/wal/test_failures.py",),
    ),
    Bug(
        "a held batch is answered before the batches that it follows",
        "proxy/diskless/wal/holds.py",
        "            if not batch.early:\n",
        "            if True:\n",
        ("tests/unit/diskless/wal/test_holds.py",),
    ),
    Bug(
        "the memory of a recompressed batch is never given back",
        "proxy/diskless/wal/intake.py",
        "            self._memory.give_back(size)\n",
        "            pass\n",
        ("tests/unit/diskless/wal/test_intake.py",),
    ),
    Bug(
        "the cache counts a block that it evicts as still there",
        "proxy/diskless/cache.py",
        "            self.used_bytes -= entry.size_bytes\n",
        "            self.used_bytes -= 0\n",
        ("tests/unit/diskless/test_cache.py",),
    ),
    Bug(
        "cached rows of a trimmed log are still served",
        "proxy/diskless/coordinates.py",
        "not max(rows[0].base_offset, tail.log_start_offset) <= request.offset < tail.high_watermark",
        "not rows[0].base_offset <= request.offset < tail.high_watermark",
        ("tests/unit/diskless/test_coordinates.py",),
    ),
    Bug(
        "a reader gets less than this proxy has acknowledged",
        "proxy/diskless/coordinates.py",
        "        if tail is None or tail.high_watermark < tail.known_high_watermark:\n",
        "        if tail is None:\n",
        ("tests/unit/diskless/test_coordinates.py",),
    ),
    Bug(
        "coordinates are trusted forever while the coordinator is away",
        "proxy/diskless/coordinates.py",
        "        too_old = now_s - tail.confirmed_s > self.max_age_s\n",
        "        too_old = False\n",
        ("tests/unit/diskless/test_coordinates.py",),
    ),
    # coordinator
    Bug(
        "an idempotent retry is stored again",
        "proxy/coordinator/lua/commit.lua",
        "      local remembered_at = find_duplicate(state, first .. after)\n",
        "      local remembered_at = nil\n",
        ("tests/integration/coordinator/test_contract_producers.py",),
    ),
    Bug(
        "a producer of an older epoch may still write",
        "proxy/coordinator/lua/commit.lua",
        "    if epoch < known_epoch then\n",
        "    if false then\n",
        ("tests/integration/coordinator/test_contract_producers.py",),
    ),
    Bug(
        "a trim raises the log start by one offset too many",
        "proxy/coordinator/lua/trim.lua",
        "        local packed = pack(LOG, log.start, high_watermark",
        "        local packed = pack(LOG, log.start + 1, high_watermark",
        ("tests/integration/coordinator/test_trim_and_garbage.py", "tests/integration/coordinator/test_contract.py"),
    ),
    Bug(
        "a swap of rows goes through although a row of it has changed",
        "proxy/coordinator/lua/replace.lua",
        "        if row ~= sub(request, given_at, given_at + GIVEN_BYTES - 1) then\n",
        "        if false then\n",
        ("tests/integration/coordinator/test_replace.py",),
    ),
    Bug(
        "a housekeeper goes on after its lease was lost",
        "proxy/coordinator/lease.py",
        "            if not doing.done():\n                raise LeaseLost(self._why_lost())\n",
        "",
        ("tests/unit/coordinator/test_lease.py", "tests/unit/housekeeping/test_fenced_housekeeper.py"),
    ),
    # guard
    Bug(
        "a fenced shard still takes commits",
        "proxy/coordinator/lua/fence.lua",
        "      return redis.error_reply('FENCED ' .. why_fenced)\n",
        "      why_fenced = nil\n",
        ("tests/integration/coordinator/test_fencing.py",),
    ),
    Bug(
        "a store with another identity is used",
        "proxy/guard/watch.py",
        "            if identity != self._identity:\n",
        "            if False:\n",
        ("tests/unit/guard/test_watch_keeping.py", "tests/integration/guard/test_watch.py"),
    ),
    # storage
    Bug(
        "an upload overwrites an object that is there",
        "proxy/storage/s3.py",
        'marked = {"IfNoneMatch": "*", "Metadata"',
        'marked = {"Metadata"',
        ("tests/integration/storage/test_storage_contract.py",),
    ),
    Bug(
        "a fetch of a range gets one byte too many",
        "proxy/storage/s3.py",
        'f"bytes={start}-{end - 1}"',
        'f"bytes={start}-{end}"',
        ("tests/integration/storage/test_storage_contract.py",),
    ),
    # topics, routing, replicas
    Bug(
        "a name is taken for classic although the lease has run out",
        "proxy/topics/topics.py",
        "        if self.gone_back or not self._lease_runs():\n",
        "        if self.gone_back:\n",
        ("tests/unit/topics/test_topics.py",),
    ),
    Bug(
        "a deleted topic's records are served under its recreated name",
        "proxy/topics/topics.py",
        "        return entry.topic_id == topic_id\n",
        "        return True\n",
        ("tests/unit/topics/test_topics.py",),
    ),
    Bug(
        "clients of a rack are sent to leaders of other racks",
        "proxy/routing/leaders.py",
        "        candidates = in_rack or live\n",
        "        candidates = live\n",
        ("tests/unit/routing/test_leaders.py",),
    ),
    Bug(
        "a replica that is not in sync is read",
        "proxy/replicas/choice.py",
        "    found = [node for node in state.isr if node in near]\n    if not found:\n",
        "    found = [node for node in state.replicas if node in near]\n    if not found:\n",
        ("tests/unit/replicas/test_choice.py",),
    ),
    Bug(
        "a replica's lower high watermark is shown after a higher one",
        "proxy/fetching/watermarks.py",
        "        elif before[0] == leader_epoch:\n",
        "        elif False:\n",
        ("tests/unit/fetching/test_watermarks.py",),
    ),
    # fetching, quotas
    Bug(
        "a mixed Fetch answers more bytes than the client allows",
        "proxy/fetching/answer.py",
        "        left = max(left - piece.record_bytes, 0)\n",
        "        left = max(left - 0, 0)\n",
        ("tests/unit/fetching/test_answer.py", "tests/unit/fetching/test_rounds.py"),
    ),
    Bug(
        "a client over its quota is not held back",
        "proxy/quotas/token_bucket.py",
        "        return max(0.0, -self._tokens / limit)\n",
        "        return 0.0\n",
        ("tests/unit/quotas/test_token_bucket.py",),
    ),
    # housekeeping
    Bug(
        "the retention of a compacted topic deletes records by time",
        "proxy/housekeeping/retention.py",
        "    if not is_deleted_from({CLEANUP_POLICY: defaults.cleanup_policy, **configs}):\n        return []\n",
        "",
        ("tests/unit/housekeeping/test_retention.py",),
    ),
    Bug(
        "an object that a running commit may use is deleted as an orphan",
        "proxy/housekeeping/garbage.py",
        "            step[bytes.fromhex(named[1])] = stored.modified_ms <= newest_ms\n",
        "            step[bytes.fromhex(named[1])] = True\n",
        ("tests/unit/housekeeping/test_garbage.py",),
    ),
    # connection
    Bug(
        "an answer overtakes an earlier one of its client",
        "proxy/client/slots.py",
        "        if self.answers.is_head(self):\n",
        "        if True:\n",
        ("tests/unit/client/test_slots.py",),
    ),
    Bug(
        "a Produce like the last one goes to the broker, whatever its topic has become",
        "proxy/producing/express.py",
        "        elif topics.is_current and topics.find(topic) is None and topics.surely_classic(topic):\n",
        "        elif True:\n",
        ("tests/unit/connection/test_express.py",),
    ),
    Bug(
        "a request on the express lane is not charged while the broker takes no more",
        "proxy/connection/express.py",
        "        if self._gate.causes & BROKER_FULL and express is not None and express.held:\n",
        "        if False:\n",
        ("tests/unit/connection/test_express.py",),
    ),
    # handlers
    Bug(
        "a user who may only describe a topic deletes it",
        "proxy/handlers/delete_topics.py",
        "    return await confirmed(client, request, entry.name, DELETE)\n",
        "    return True\n",
        ("tests/unit/handlers/test_delete_topics.py",),
    ),
    # judge, verify: a checker that sees nothing, or what is not there
    Bug(
        "a record that retention deleted is lost",
        "proxy/judge/presence.py",
        "        return offset < partition.low\n",
        "        return False\n",
        _JUDGE,
    ),
    Bug(
        "consumers of the other isolation level must not get aborted records",
        "proxy/judge/presence.py",
        "            if view.isolation is Isolation.COMMITTED and records.views[number] & view.bit\n",
        "            if view.isolation is Isolation.UNCOMMITTED and records.views[number] & view.bit\n",
        _JUDGE,
    ),
    Bug(
        "the order of a producer's records is not compared",
        "proxy/judge/presence.py",
        "        if offset < before_offset:\n",
        "        if offset == before_offset:\n",
        _JUDGE,
    ),
    Bug(
        "a record that was lost after someone had read it is there",
        "proxy/judge/presence.py",
        "        missing = [view for view in self.state.views.values() if view.judged and not seen_by & view.bit]\n",
        "        missing = [view for view in self.state.views.values() if view.judged and not seen_by]\n",
        _JUDGE,
    ),
    Bug(
        "a consumer that is assigned again must go on where it was",
        "proxy/judge/reads.py",
        "            reader.positions.pop(self._state.places[operation.topic, number].index, None)\n",
        "            pass\n",
        _JUDGE,
    ),
    Bug(
        "one skipped offset is no gap",
        "proxy/judge/reads.py",
        "        elif offset > expected:\n",
        "        elif offset > expected + 1:\n",
        _JUDGE,
    ),
    Bug(
        "records of open transactions may be read",
        "proxy/judge/reads.py",
        "            if not transaction.committing:\n",
        "            if transaction.aborted:\n",
        _JUDGE,
    ),
    Bug(
        "a transaction with an unknown outcome was committed",
        "proxy/judge/state.py",
        "            return self.committing and self.seen\n",
        "            return True\n",
        _JUDGE,
    ),
    Bug(
        "read_committed consumers skip the records of aborted transactions",
        "proxy/judge/state.py",
        "        return transaction is None or isolation is Isolation.UNCOMMITTED or transaction.committed\n",
        "        return True\n",
        _JUDGE,
    ),
    Bug(
        "an idempotent producer's record may be stored twice",
        "proxy/judge/places.py",
        "        if records.exactly_once:\n",
        "        if not records.exactly_once:\n",
        _JUDGE,
    ),
    Bug(
        "records that a producer gives up are progress",
        "proxy/judge/writes.py",
        "    state.patience[operation.client].wait(operation.at_us, line)\n",
        "    state.patience[operation.client].progress(operation.at_us, line, more=True)\n",
        _JUDGE,
    ),
    Bug(
        "a record with other bytes is the one that was sent",
        "proxy/verify/payload.py",
        "    return found if record(run, found, len(content)) == (key, content) else DAMAGED\n",
        "    return found\n",
        ("tests/unit/verify/test_payload.py",),
    ),
    *JOURNAL_BUGS,
    *TRANSACTION_BUGS,
)
"""One bug at least for each room that serves or keeps records."""
