-- Apply the markers that brokers wrote into shadows: end transactions.
--
-- ARGV[2]  of each partition: topic ID and partition (20 bytes), i64 offset in the shadow's log from which on markers were read, i64 the
--          one up to which, i32 leader epoch there, u32 count, then `count` MARKERs
-- ARGV[3]  u64: expiry of producers in ms
-- Answers, per partition: i16 error, i64 offset of the next marker to read, u32 transactions ended, u32 of them that were aborted.
--
-- Markers are applied in their order, each once: if the first offset is not the one that is expected, nothing is done. So two proxies
-- may read the same shadow, and a call may be repeated.
--
-- A part without markers that ends before its first offset says that the shadow's log was truncated there (an unclean election): other
-- markers get the offsets from there on. So what is known of such offsets is forgotten. What they have ended stays ended.
--
-- A marker ends the producer's open transaction if its epoch is higher, or if it is equal and the marker is not before the
-- transaction's `from`. Then it gets an offset and a row. Of any other marker only the producer's state is kept: its partition was added
-- to a transaction that never wrote to it, or whose end is known.
--
-- The row of a marker has length 0: it has no object. In the place of the segment are producer ID (8 bytes), i16 epoch, i32 coordinator
-- epoch, u8 type (0 abort, 1 commit), u8 0. Its timestamps are the marker's own.
--
-- Producer rules: ProducerAppendInfo.appendEndTxnMarker, ProducerStateManager.lastStableOffset of Kafka 4.x.

local HEAD, MARKER = '>c20i8i8i4I4', '>i8c8i2i4BBi8' -- of a MARKER: offset in the shadow, producer ID, epoch, coordinator epoch,
-- type, format flags of its row (LogAppendTime), timestamp
local MARKER_BYTES, ID_AT, ID_BYTES = 32, 8, 8 -- of a MARKER
local MARKER_SEGMENT = '>c8i2i4BB'
local APPLIED = '>i2i8I4I4'
local ABORT = 0
local PRODUCER, PRODUCER_BYTES = '>i2i8', 10 -- as in commit_producers.lua
-- In place of a batch of the new epoch, so that the first sequence is expected: no sequence, FIRST_SEQUENCE, log end, no timestamp.
local NO_BATCH = '>i4I4i8i8'
local LAST_APPEND_AT = 3
local MOST_FIELDS_PER_CALL = 1000

local request, expires_after = ARGV[2], parse('>I8', ARGV[3])
local now = clock()
local producers_key = prefix .. 'producers'

local scored, announced, aborted, closed, ids = {}, {}, {}, {}, {} -- to be added; of `closed`, to be removed
local logs, producers, transactions, shadows, unfollowed = {}, {}, {}, {}, {} -- to be stored: field, value, and so on
local more_offsets = 0

local function put(list, name, value)
  list[#list + 1], list[#list + 2] = name, value
end

-- The logs and shadows of all parts, in their order. By field, the producers and transactions of all markers, as the markers so far
-- leave them: false where there is none, or it has expired.
local partitions, fields = {}, {}
local known_producers, known_transactions, touched, is_listed = {}, {}, {}, {}
do
  local at = 1
  while at <= #request do
    local partition, _, _, _, count, markers_at = parse(HEAD, request, at)
    partitions[#partitions + 1] = partition
    at = markers_at + count * MARKER_BYTES
    for id_at = markers_at + ID_AT, at - 1, MARKER_BYTES do
      local field = partition .. sub(request, id_at, id_at + ID_BYTES - 1)
      if known_producers[field] == nil then
        known_producers[field] = false
        fields[#fields + 1] = field
      end
    end
  end
end
for at = 1, #fields, MOST_FIELDS_PER_CALL do
  local last = math.min(at + MOST_FIELDS_PER_CALL - 1, #fields)
  local producer_states = call('HMGET', producers_key, unpack(fields, at, last))
  for index, transaction in ipairs(call('HMGET', transactions_key, unpack(fields, at, last))) do
    local field, producer = fields[at + index - 1], producer_states[index]
    if producer and now - parse('>i8', producer, LAST_APPEND_AT) >= expires_after
      and not (transaction and is_open_transaction(transaction)) then
      producer = false
    end
    known_producers[field], known_transactions[field] = producer, transaction
    is_listed[field] = producer_states[index] or transaction
  end
end
local packed_logs, positions = call('HMGET', logs_key, unpack(partitions)), call('HMGET', shadows_key, unpack(partitions))

-- Apply one marker to a log, which is changed; true if it ended a transaction.
local function apply(partition, log, open, at)
  local offset, id, epoch, coordinator_epoch, outcome, flags, timestamp, next_at = parse(MARKER, request, at)
  local field = partition .. id
  local producer, transaction = known_producers[field], known_transactions[field]
  local known_epoch, first, from, known_marker, known_coordinator_epoch = UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN
  if transaction then
    known_epoch, first, from, known_marker, known_coordinator_epoch = parse(TXN, transaction)
  end
  local ends = first >= 0 and (epoch > known_epoch or (epoch == known_epoch and offset >= from))
  if ends then
    local last = log.log_end
    log.log_end, log.rows, log.maximum = last + 1, log.rows + 1, math.max(log.maximum, timestamp)
    local member = partition .. pack(ROW, last, last, log.start, FORMAT + flags,
      pack(MARKER_SEGMENT, id, epoch, coordinator_epoch, outcome, 0), now, 0, 0, timestamp, log.maximum)
    put(scored, NO_SCORE, member)
    announced[#announced + 1] = member
    closed[#closed + 1] = partition .. pack('>i8', first) .. id
    open.ended[id] = true
    while open.firsts[open.oldest] and open.ended[open.ids[open.oldest]] do
      open.oldest = open.oldest + 1
    end
    log.stable = open.firsts[open.oldest] or log.log_end
    if outcome == ABORT then
      local entry = pack(ABORTED, last, first, id, log.stable)
      put(aborted, NO_SCORE, partition .. entry)
      log.aborted[#log.aborted + 1] = entry
    end
    first = UNKNOWN
  end
  -- A higher epoch begins with the first sequence. An epoch that is not higher keeps what is known of the producer's batches.
  if not producer or epoch > parse('>i2', producer) then
    known_producers[field] = pack(PRODUCER, epoch, now) .. pack(NO_BATCH, UNKNOWN, 0, log.log_end, UNKNOWN)
  elseif epoch == parse('>i2', producer) then
    known_producers[field] = pack(PRODUCER, epoch, now) .. sub(producer, PRODUCER_BYTES + 1)
  end
  known_transactions[field] = pack(TXN, known_epoch, first, from, math.max(known_marker, offset),
    math.max(known_coordinator_epoch, coordinator_epoch), now)
  touched[field] = true
  return ends, next_at
end

-- The oldest open transactions of a log, one more than so many markers can end.
local function oldest_open(partition, log, markers)
  local open = { firsts = {}, ids = {}, ended = {}, oldest = 1 }
  if log.stable < log.log_end then
    for index, member in ipairs(some_of(open_key, partition, markers + 1)) do
      open.firsts[index], open.ids[index] = parse('>i8c8', member, PARTITION_BYTES + 1)
    end
  end
  return open
end

-- Apply the markers of one partition; return how many have ended a transaction.
local function apply_all(partition, log, count, at)
  local open, ended, was_open = oldest_open(partition, log, count), 0, log.stable < log.log_end
  log.aborted = {}
  for _ = 1, count do
    local ends
    ends, at = apply(partition, log, open, at)
    ended = ended + (ends and 1 or 0)
  end
  if ended > 0 then
    for _, entry in ipairs(log.aborted) do
      announced[#announced + 1] = announced_abort(partition, log.start, entry)
    end
    announced[#announced + 1] = announced_ends(partition, log.start, log.log_end, log.stable)
    put(logs, partition,
      pack(LOG, log.start, log.log_end, log.bytes, log.rows, log.maximum, log.created, log.stable, now, changed_at, LOG_FORMAT))
    more_offsets = more_offsets + ended
  end
  if was_open and log.stable == log.log_end then
    put(unfollowed, now, partition)
  end
  return ended, #log.aborted
end

-- Forget the offsets of a shadow's log from its new end on: no marker of a transaction may seem to have been applied already.
local function truncate(partition, log_end)
  for _, field in ipairs(call('ZRANGEBYLEX', prefix .. 'producer_ids', '[' .. partition, end_of(partition))) do
    local transaction = call('HGET', transactions_key, field)
    if transaction then
      local epoch, first, from, marker, coordinator_epoch, changed = parse(TXN, transaction)
      if from > log_end or marker >= log_end then
        put(transactions, field, pack(TXN, epoch, first, math.min(from, log_end), math.min(marker, log_end - 1), coordinator_epoch,
          changed))
      end
    end
  end
end

local parts, at = {}, 1
for index, partition in ipairs(partitions) do
  local _, from, up_to, leader_epoch, count, markers_at = parse(HEAD, request, at)
  at = markers_at + count * MARKER_BYTES
  local packed_log, expected = packed_logs[index], next_of_shadow(positions[index])
  if not packed_log then
    parts[#parts + 1] = pack(APPLIED, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN, 0, 0)
  elseif from ~= expected or (up_to < from and count > 0) then
    parts[#parts + 1] = pack(APPLIED, 0, expected, 0, 0)
  elseif up_to < from then
    truncate(partition, up_to)
    put(shadows, partition, pack(SHADOW, leader_epoch, up_to))
    parts[#parts + 1] = pack(APPLIED, 0, up_to, 0, 0)
  else
    local log = {}
    log.start, log.log_end, log.bytes, log.rows, log.maximum, log.created, log.stable = parse(LOG, packed_log)
    local ended, ended_by_abort = apply_all(partition, log, count, markers_at)
    put(shadows, partition, pack(SHADOW, leader_epoch, up_to))
    parts[#parts + 1] = pack(APPLIED, 0, up_to, ended, ended_by_abort)
  end
end
if #shadows == 0 then
  return reply(parts)
end
for _, field in ipairs(fields) do
  if touched[field] then
    put(transactions, field, known_transactions[field])
    if not is_listed[field] then
      put(ids, NO_SCORE, field)
    end
    put(producers, field, known_producers[field])
  end
end

-- If a script stops halfway, the markers are applied again: the shadow's position is written last.
note_change(#scored / 2, #scored / 2 * ROW_MEMBER_BYTES, more_offsets, true)
add_members(aborted_key, aborted)
add_members(rows_key, scored)
add_members(prefix .. 'producer_ids', ids)
add_members(followed_key, unfollowed)
local function store(key, fields)
  for first = 1, #fields, 1000 do
    call('HSET', key, unpack(fields, first, math.min(first + 999, #fields)))
  end
end
store(producers_key, producers)
for first = 1, #closed, 1000 do
  call('ZREM', open_key, unpack(closed, first, math.min(first + 999, #closed)))
end
store(logs_key, logs)
store(transactions_key, transactions)
store(shadows_key, shadows)
if #announced > 0 then
  announce(announced)
end
return reply(parts)
