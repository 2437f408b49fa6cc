-- The state of transactions, shared by the scripts of one shard; the loader puts it after members.lua. A commit has it in a function
-- (commit_transactions.lua).
--
-- The truth of a transaction is with the brokers, which write a *marker* into the shadow (the placeholder topic) of each partition when
-- it ends. A marker at `from` or after it may end a transaction; `from` is the end that the shadow's log had after the partition had
-- been added to the transaction. A marker of the transaction before is before it.
--
-- <prefix>txn                hash: topic ID and partition, producer ID (as a field of the producers' hash) -> TXN
-- <prefix>open               sorted set, all scores 0: topic ID and partition, i64 first offset, producer ID: the open transactions
-- <prefix>aborted            sorted set, all scores 0: topic ID and partition, ABORTED: in the order of their last offsets
-- <prefix>shadows            hash: topic ID and partition -> SHADOW
-- <prefix>followed           sorted set by the time in ms of the log's last transaction, FOLLOWED_ALWAYS while one is open: topic ID
--                            and partition
--
-- LOG has, as its last stable offset, the first offset of the oldest open transaction, also after a DeleteRecords past it; without an
-- open transaction it is the high watermark.

-- Of the producer's newest transaction: epoch, first offset if it is open, `from`. Of its last marker: offset in the shadow's log,
-- coordinator epoch. Time of the last change. -1 for what is not known.
local TXN = '>i2i8i8i8i4i8'
local ABORTED, ABORTED_BYTES = '>i8i8c8i8', 32 -- last offset (of the marker), first offset, producer ID, last stable offset then
local SHADOW = '>i4i8' -- leader epoch and offset of the next marker to read
local UNKNOWN = -1
local FOLLOWED_ALWAYS = '9007199254740991'
local transactions_key, open_key, aborted_key = prefix .. 'txn', prefix .. 'open', prefix .. 'aborted'
local shadows_key, followed_key = prefix .. 'shadows', prefix .. 'followed'

local function is_open_transaction(state)
  return string.byte(state, 3) < 128 -- its first offset is not negative
end

local function next_of_shadow(position)
  return position and parse('>i8', position, 5) or 0
end

-- The entry of a log in an announcement that says where it ends: a ROW of format 0, with the offset before the high watermark as last
-- offset, and the last stable offset as base. An announcement of new rows has it, after them, if the last stable offset is not the high
-- watermark.
local function announced_ends(partition, log_start, high_watermark, stable)
  return partition .. pack(ROW, high_watermark - 1, math.max(stable, log_start), log_start, 0, NO_SERVER, 0, 0, 0, 0, 0)
end

-- The entry of an aborted transaction in an announcement: a ROW of format ABORTED_FORMAT, with producer ID and the last stable offset
-- then in place of the segment.
local ABORTED_FORMAT = 4

local function announced_abort(partition, log_start, entry)
  local last, first, id, stable = parse(ABORTED, entry)
  return partition .. pack(ROW, last, first, log_start, ABORTED_FORMAT, id .. pack('>i8', stable), 0, 0, 0, 0, 0)
end
