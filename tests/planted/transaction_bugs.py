"""The bugs of transactions on diskless topics."""

from __future__ import annotations

from tests.planted.plant import Bug

_STORE = ("tests/integration/coordinator/test_transactions.py",)

TRANSACTION_BUGS: tuple[Bug, ...] = (
    Bug(
        "the ends of placeholder topics are read after the transaction was seen ongoing",
        "proxy/transactions/enlistments.py",
        "                await self._ends.read(partial(client.ask, request), added.logs, ends)\n"
        "                if await self._is_ongoing(client, request, added) and await self._enlist_from(added, ends):\n",
        "                if not await self._is_ongoing(client, request, added):\n"
        "                    return False\n"
        "                await self._ends.read(partial(client.ask, request), added.logs, ends)\n"
        "                if await self._enlist_from(added, ends):\n",
        ("tests/unit/transactions/test_enlistments.py",),
    ),
    Bug(
        "the end of a placeholder topic counts for every transaction of a producer of version 2",
        "proxy/transactions/additions.py",
        "        return end if known == producer else None\n",
        "        return end\n",
        ("tests/unit/transactions/test_additions.py",),
    ),
    Bug(
        "a transaction of another session counts as the client's",
        "proxy/transactions/enlistments.py",
        "                is_same = (one.error_code, one.state, one.producer_id, one.producer_epoch) == (\n"
        "                    NONE,\n"
        "                    ONGOING,\n"
        "                    added.producer_id,\n"
        "                    added.producer_epoch,\n"
        "                )\n",
        "                is_same = (one.error_code, one.state) == (NONE, ONGOING)\n",
        ("tests/unit/transactions/test_enlistments.py",),
    ),
    Bug(
        "a broker that was the leader before answers with the end of a placeholder topic",
        "proxy/transactions/shadow_ends.py",
        "                ends.update(await list_offsets(connection, some, LATEST_TIMESTAMP, leader_epochs=epochs))\n",
        "                ends.update(await list_offsets(connection, some, LATEST_TIMESTAMP))\n",
        ("tests/unit/transactions/test_enlistments.py",),
    ),
    Bug(
        "the end of another topic's log of the same name counts",
        "proxy/transactions/shadow_ends.py",
        "                if logs.get((topic.name, index)) == topic.topic_id and state.leader >= 0:\n",
        "                if (topic.name, index) in logs and state.leader >= 0:\n",
        ("tests/unit/transactions/test_enlistments.py",),
    ),
    Bug(
        "a client without the right to a transactional ID writes in its transaction",
        "proxy/client/transactional_ids.py",
        "        denied = error_code == TRANSACTIONAL_ID_AUTHORIZATION_FAILED\n",
        "        denied = False\n",
        ("tests/unit/client/test_transactional_ids.py",),
    ),
    Bug(
        "the first marker of an answer is skipped",
        "proxy/markers/batches.py",
        "        if header.is_control and base_offset >= from_offset:\n",
        "        if header.is_control and base_offset > from_offset:\n",
        ("tests/unit/markers/test_batches.py",),
    ),
    Bug(
        "a commit is applied as an abort",
        "proxy/markers/batches.py",
        "        kind == COMMIT,\n",
        "        kind == ABORT,\n",
        ("tests/unit/markers/test_batches.py",),
    ),
    Bug(
        "the log of a new leader counts as the one that was read before",
        "proxy/markers/epochs.py",
        "    elif end == _UNDEFINED or end >= position.next_offset:\n",
        "    elif end >= _UNDEFINED:\n",
        ("tests/unit/markers/test_following.py",),
    ),
    Bug(
        "a placeholder topic is read up to its end although its markers were not applied",
        "proxy/markers/reader.py",
        "        if answer.next_offset < part.next_offset:\n            outcome.at_end.discard(log)\n",
        "",
        ("tests/unit/markers/test_reader.py",),
    ),
    Bug(
        "a later transaction of the producer says how a lost one ended",
        "proxy/markers/reconciling.py",
        "        and 0 < state.start_ms <= one.since_ms\n",
        "        and 0 < state.start_ms\n",
        ("tests/unit/markers/test_reconciling.py",),
    ),
    Bug(
        "the marker of the transaction before ends the open one",
        "proxy/coordinator/lua/apply_markers.lua",
        "  local ends = first >= 0 and (epoch > known_epoch or (epoch == known_epoch and offset >= from))\n",
        "  local ends = first >= 0 and epoch >= known_epoch\n",
        _STORE,
    ),
    Bug(
        "a batch that comes after the marker of its transaction opens it again",
        "proxy/coordinator/lua/commit_transactions.lua",
        "  elseif from < 0 or marker >= from then\n",
        "  elseif from < 0 then\n",
        _STORE,
    ),
    Bug(
        "sequences that an earlier transaction used are answered as a retry",
        "proxy/coordinator/lua/commit_producers.lua",
        "      if transactions and transactions.is_earlier(field, epoch, parse('>i8', base_offset)) then\n",
        "      if false then\n",
        _STORE,
    ),
    Bug(
        "a partition is enlisted before the markers of the last transaction are applied",
        "proxy/coordinator/lua/enlist.lua",
        "  elseif next_of_shadow(call('HGET', shadows_key, partition)) < from "
        "or (first >= 0 and epoch > known_epoch) then\n",
        "  elseif first >= 0 and epoch > known_epoch then\n",
        _STORE,
    ),
    Bug(
        "readers of committed records get those of open transactions",
        "proxy/diskless/diskless_reader.py",
        "    return answer.last_stable_offset if request.committed else answer.high_watermark\n",
        "    return answer.high_watermark\n",
        ("tests/unit/diskless/test_committed_reads.py",),
    ),
)
