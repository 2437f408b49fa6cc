"""The bugs of the journal."""

from __future__ import annotations

from tests.planted.plant import Bug

JOURNAL_BUGS: tuple[Bug, ...] = (
    Bug(
        "an append whose leader lost its office meanwhile is sent again",
        "proxy/journal/errors.py",
        "    if answer.base_offset >= 0:\n        return Outcome.UNKNOWN\n",
        "",
        ("tests/unit/journal/test_appends.py",),
    ),
    Bug(
        "a record whose answer was lost counts as not appended",
        "proxy/journal/appends.py",
        'was sent the record: {error}", appended=True)\n',
        'was sent the record: {error}", appended=False)\n',
        ("tests/unit/journal/test_appends.py",),
    ),
    Bug(
        "a partition of the journal has two requests under way",
        "proxy/journal/appends.py",
        "                    line.busy = True\n",
        "",
        ("tests/unit/journal/test_appends.py",),
    ),
    Bug(
        "records that were not appended are sent again after later ones",
        "proxy/journal/waiting.py",
        "        self.entries.extendleft(reversed(entries))\n",
        "        self.entries.extend(entries)\n",
        ("tests/unit/journal/test_appends.py",),
    ),
    Bug(
        "a cancelled append that waits is sent all the same",
        "proxy/journal/appends.py",
        "                line.entries.remove(entry)\n",
        "                entry.answer = asyncio.get_running_loop().create_future()\n",
        ("tests/unit/journal/test_appends.py",),
    ),
    Bug(
        "a record takes the place of a lost one",
        "proxy/journal/appends.py",
        "        if base_offset < floor:\n",
        "        if base_offset < 0:\n",
        ("tests/unit/journal/test_appends.py",),
    ),
    Bug(
        "a leader of an earlier epoch replaces its successor",
        "proxy/journal/leaders.py",
        "                if known is None or state.leader_epoch >= known.epoch:\n",
        "                if known is None or state.leader_epoch >= 0:\n",
        ("tests/unit/journal/test_reads.py",),
    ),
    Bug(
        "the end of a partition is below what a read has returned",
        "proxy/journal/reads.py",
        "            if answer.offset < floor:\n",
        "            if answer.offset < 0:\n",
        ("tests/unit/journal/test_reads.py",),
    ),
    Bug(
        "a new leader that does not return a record yet ends the journal",
        "proxy/journal/reads.py",
        "            elif from_position < floor:\n",
        "            elif from_position < 0:\n",
        ("tests/unit/journal/test_reads.py",),
    ),
    Bug(
        "the end of the journal leaves an append waiting that had just begun",
        "proxy/journal/appends.py",
        "                self._fail(line, entries, _CLOSED, appended=True)\n",
        "                pass\n",
        ("tests/unit/journal/test_appends.py",),
    ),
    Bug(
        "a topic without LogAppendTime holds the journal",
        "proxy/journal/topic.py",
        '    "message.timestamp.type": ("LogAppendTime",),\n',
        '    "message.timestamp.type": ("LogAppendTime", "CreateTime"),\n',
        ("tests/unit/journal/test_topic.py",),
    ),
    Bug(
        "a journal that begins with data looks as if it were all there is",
        "proxy/guard/journal_change.py",
        "        await change.journal.trim(partition, FIRST)\n",
        "        pass\n",
        ("tests/integration/coordinator/test_journal_change.py",),
    ),
    Bug(
        "what a journal had does not count when the store loses it",
        "proxy/coordinator/lua/adopt_store.lua",
        "(server_here() or NO_SERVER), 0, 0, 0)\n",
        "(server_here() or NO_SERVER), sequence, offsets_given, written)\n",
        ("tests/integration/coordinator/test_journal_change.py",),
    ),
)
"""Each of them loses a record, repeats one, or hides that one was lost."""
