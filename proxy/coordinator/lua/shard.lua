-- Shared by the scripts of one shard; the loader puts it in front of each.
--
-- SCRIPT   name of the script; the loader sets it
-- KEYS[1]  <prefix>meta; the prefix of all keys of the shard has the hash tag, so one slot of a cluster has them all
-- KEYS[2]  <prefix>never: a key that never exists. While a slot moves key by key, a server runs only what has all its keys there. So
--          no script finds a half of a shard, and takes it for a new one.
-- ARGV[1]  8 bytes: incarnation to give a shard that has none; u32: number of shards the caller counts with; then the part of
--          fence.lua or journal.lua: the loader puts one of them after this file
--
-- <prefix>meta               hash: state (a STATE), unfinished (the script that writes; nobody sees it unless that script stopped
--                            halfway), pass (which of the keys that expire belong to the shard; reset.lua), and what fence.lua or
--                            journal.lua keeps
-- <prefix>logs               hash: topic ID and partition (20 bytes) -> LOG
-- <prefix>rows               sorted set, all scores 0: topic ID and partition, then ROW or many rows packed (rows.lua). So the
--                            rows of a log are neighbours, in the order of their last offsets: the index of the log
-- <prefix>packed             hash: topic ID and partition -> i64 offset up to which its index was packed
-- <prefix>compacted          hash: topic ID and partition -> i64 offset up to which it was compacted
-- <prefix>raised             hash: topic ID and partition -> i64 log end to which unfence.lua raised it; '' -> i64 offset at which the
--                            new partitions of a topic that grows begin since then
-- <prefix>producers          hash: topic ID and partition, producer ID (8 bytes) -> PRODUCER, then one REMEMBERED per batch,
--                            oldest first
-- <prefix>producer_ids       sorted set, all scores 0: the fields of that hash, so that those of one log are neighbours
-- <prefix>answers:…          string by pass and segment, which grows: i64 time in ms after which it does not count, then
--                            ANSWERS as commit.lua gave them, and so on; expires
-- <prefix>answered           in a view: sorted set by that time: the segments of such answers (forget_answers.lua)
-- <prefix>reply:…            string by pass and position: the reply to a record of the journal (journal.lua); expires
-- <prefix>segments           hash: segment -> USE
-- <prefix>dirty              sorted set, all scores 0: what has changed since it was copied to a snapshot (copying.lua)
-- <prefix>garbage            sorted set by time in ms since when nothing in this shard uses it: segment
-- <prefix>tombstones         sorted set by time in ms since when commits of it are refused: segment
-- <prefix>announcements      sharded pub/sub channel
--
-- The keys of transactions are in transactions.lua.
--
-- Numbers are doubles here: exact up to 2^53. Producer IDs are never made numbers.

local call, pack, parse, sub = redis.call, struct.pack, struct.unpack, string.sub

-- LOG has more than 64 bytes, as the rows have, for a reason: up to 64 the server keeps hashes and sets of a few hundred
-- entries as lists, where each access looks at every entry.
local FORMAT, LOG_FORMAT = 1, 3
-- Log start, log end (which is the high watermark), bytes, rows, maximum timestamp of all rows, creation, last stable offset, last
-- append, journal position of the last change (-1 without one), format.
local LOG = '>i8i8i8i8i8i8i8i8i8B'
local NO_POSITION = -1
local changed_at = NO_POSITION -- journal position of this call; journal.lua sets it
local replays = false -- whether this call's record was applied before: then nothing may be written; journal.lua sets it
-- Last offset, base, log start when it was made, format, segment, append time, position, length, maximum timestamp, running maximum
-- timestamp.
local ROW, ROW_BYTES = '>i8i8i8Bc16i8I4I4i8i8', 73
local PARTITION_BYTES = 20 -- topic ID and partition
local USE = '>i8I4' -- bytes, rows
-- The ID of a life is the incarnation and half of the server's replication ID. Then the sequence, the offsets given, and the
-- time of the newest write, with which it began.
local LIFE, LIFE_BYTES, LIFE_ID_BYTES = '>c24I8I8I8', 48, 24
-- Incarnation, sequence (of writes), shards, rows and bytes of all indexes, offsets (given so far, in all logs), time of the
-- newest write, time of the newest write that must not be lost, a LIFE without its incarnation.
local STATE = '>c8I8I4I8I8I8I8I8c40'
local UNKNOWN_TOPIC_OR_PARTITION = 3

local prefix = sub(KEYS[1], 1, -#'meta' - 1)
local meta_key, logs_key, rows_key = prefix .. 'meta', prefix .. 'logs', prefix .. 'rows'
local NO_INCARNATION, NO_SERVER = '\0\0\0\0\0\0\0\0', '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
local NO_FIGURES = NO_INCARNATION .. NO_SERVER -- of a life
local JOURNAL_INCARNATION = 'journal\0' -- of a shard that is a view of a journal
local new_incarnation, expected_shards = parse('>c8I4', ARGV[1])
local meta = call('HMGET', meta_key, 'state', 'fenced', 'unfinished', 'proved', 'pass', 'snapshot')
local pass = meta[5] or ''
local is_new = not meta[1] -- nothing was ever written to this shard
local incarnation, sequence, shards, index_rows, index_bytes, offsets_given, written, must_last, life_here
if is_new then
  incarnation, sequence, shards, index_rows, index_bytes = NO_INCARNATION, 0, expected_shards, 0, 0
  offsets_given, written, must_last, life_here = 0, 0, 0, NO_SERVER .. NO_FIGURES
else
  incarnation, sequence, shards, index_rows, index_bytes, offsets_given, written, must_last, life_here = parse(STATE, meta[1])
end
local life = incarnation .. life_here
if shards ~= expected_shards then
  return redis.error_reply(string.format('SHARDS %d', shards))
end

-- A script whose command is rejected keeps what it has written before. So the first write of each script is its own name, and
-- the last removes that again: a name that is found means that a script stopped halfway (fence.lua).
local writing = false

-- To be called before the first write by each script that removes something before `note_change`, or may make room. It begins
-- with a removal: the server allows that when memory is short, and then also the writes after it.
local function begin_change()
  if not writing then
    writing = true
    call('HDEL', meta_key, 'unfinished')
    call('HSET', meta_key, 'unfinished', SCRIPT)
  end
end

-- In milliseconds since 1970; one time for the whole script. No script asks for the time in another way.
local now_ms
local function clock()
  if not now_ms then
    local time = call('TIME')
    now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  return now_ms
end

-- What grace periods are counted by. In a view that is the time by which they began, not that of a server which nobody compares.
local function time_of_ages()
  return incarnation == JOURNAL_INCARNATION and written or math.max(clock(), written)
end

local function packed_state()
  return pack(STATE, incarnation, sequence, expected_shards, index_rows, index_bytes, offsets_given, written, must_last,
    sub(life, 9))
end

-- fence.lua and journal.lua define these. Each script that writes calls note_change once, before the first write that is no removal. An
-- announcement is the last write of a script: what is not announced is there all the same.
local note_change, finish_change, state, reply, announce
