-- Order the batches of partition runs of one segment. Everything is worked out before the first write.
--
-- ARGV[2]  runs: topic ID and partition (20 bytes), u32 position, u32 count, u8 whether it is under LogAppendTime, then
--          `count` times
--          u32 length, u32 records, i64 maximum timestamp, 8 bytes producer ID, i16 epoch, u32 first sequence, u32 the
--          sequence after the last, as the producer counts (2147483647, then 0); if there are transactional batches, then
--          `count` times u8 transaction version (0 if the batch is not transactional), i64 the offset in the shadow's log from
--          which on a marker may end the transaction (only of version 2)
-- ARGV[3]  u32: batches remembered per producer; u64: expiry of producers in ms; 16 bytes: segment; u64: bytes of the
--          shard's indexes at which commits are refused (0: never); u8 1 if there are transactional batches
-- Answers, per run: i16 error, i64 log start, i64 high watermark, then without error one BATCH_ANSWER per batch.
--
-- A retry gets the answers of the first time, but what was EARLY then is judged again: a batch whose sequence is beyond the
-- one expected, as its producer sent what comes between to another proxy. Where it can't be judged, it is answered why.
--
-- A commit costs the server a bounded number of calls, however many runs it has: each of them reads or writes what all runs
-- need. A new row is packed once: the same bytes are in the index and in the announcement.
--
-- Producer rules: ProducerAppendInfo, ProducerStateEntry of Kafka 4.x, and KAFKA-15591 for a log that never held a record.
-- Sequences are only ever compared, so they stay bytes.
--
-- Transactions (commit_transactions.lua) cost a plain commit one comparison a run: their states are read when the first run is found
-- that has transactional batches, or whose log has an open transaction. A batch may also be EARLY because the marker that ends its
-- producer's transaction before it was not applied yet.

local OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, KAFKA_STORAGE_ERROR, INVALID_RECORD = 45, 47, 56, 87
local THROTTLING_QUOTA_EXCEEDED = 89
local FIRST_SEQUENCE = '\0\0\0\0'
local ANSWERS_KEPT_MS, KEPT_BEYOND_MS = 3600000, 600000 -- without a time after which it is too late, and beyond it
local ANSWERS_AT = 9 -- after the time until which they count
local MOST_FIELDS_PER_CALL = 1000

local RUN_KEY, RUN_REST, RUN_BYTES = '>c20xxxxI4', '>I4I4B', 29
local BATCH, BATCH_BYTES, ID_AT, ID_BYTES = '>I4I4i8c8i2c4c4', 34, 16, 8
local ANSWER_HEAD_BYTES = 18 -- i16 error, i64 log start, i64 high watermark
local BATCH_ANSWER, BATCH_ANSWER_BYTES = '>i2i8i8B', 19 -- error, base offset, append time (or -1), what it is
local ONE_ANSWER = '>i2i8i8i2i8i8B' -- a head and one BATCH_ANSWER
local DUPLICATE, EARLY = 1, 2
local MEMBER = '>c20i8i8Bi8c16I4I4i8i8i8' -- topic ID and partition, then a ROW
local PRODUCER, PRODUCER_BYTES = '>i2i8', 10 -- epoch, time of the last append; then REMEMBERED
local REMEMBERED_BYTES = 24 -- first sequence and the one after the last (4 bytes each), base offset, timestamp (i64)
local STATE_OF_PRODUCER = '>i2i8c0c4c4i8i8' -- PRODUCER, what is remembered by then, the newest REMEMBERED
local SEQUENCES, FARTHEST_AHEAD = 2 ^ 31, 2 ^ 30
local LOG_APPEND_TIME = 0x10 -- in the format of a ROW

local byte, find = string.byte, string.find
local request = ARGV[2]
local most_remembered, expires_after, segment, most_index_bytes, has_kinds = parse('>I4I8c16I8B', ARGV[3])
has_kinds = has_kinds == 1
local most_kept_bytes = (most_remembered - 1) * REMEMBERED_BYTES -- in front of the newest
local now = clock()
local answers_key, producers_key = prefix .. 'answers:' .. pass .. segment, prefix .. 'producers'

-- The logs and producers of all runs.
local partitions, starts, run_count = {}, {}, 0 -- where the rest of each run starts
local producers, fields = {}, {} -- states by field of the producers' hash, false where there is none or it has expired; the fields
do
  local at, end_of_request = 1, #request
  while at <= end_of_request do
    local partition, count = parse(RUN_KEY, request, at)
    run_count = run_count + 1
    partitions[run_count], starts[run_count] = partition, at + 20
    local id_at = at + RUN_BYTES + ID_AT
    at = at + RUN_BYTES + count * BATCH_BYTES
    while id_at < at do
      if byte(request, id_at) < 128 then -- not negative: the producer is idempotent
        local field = partition .. sub(request, id_at, id_at + ID_BYTES - 1)
        if producers[field] == nil then
          producers[field] = false
          fields[#fields + 1] = field
        end
      end
      id_at = id_at + BATCH_BYTES
    end
    if has_kinds then
      at = at + count * 9 -- KIND_BYTES of commit_transactions.lua
    end
  end
end
local logs = call('HMGET', logs_key, unpack(partitions))
local has_state = {} -- states by field of the producers that are in the store, expired or not
for at = 1, #fields, MOST_FIELDS_PER_CALL do
  local last = math.min(at + MOST_FIELDS_PER_CALL - 1, #fields)
  local states = call('HMGET', producers_key, unpack(fields, at, last))
  for index = at, last do
    local state = states[index - at + 1]
    if state then
      local field = fields[index]
      local _, last_append = parse(PRODUCER, state)
      has_state[field] = state
      producers[field] = now - last_append < expires_after and state
    end
  end
end

-- What an earlier try of this commit answered, by topic ID and partition. There rarely was one, so this is a string that
-- is quick to append to rather than a hash.
local answered = {}
local stored = call('GET', answers_key) or ''
if #stored >= ANSWERS_AT and parse('>i8', stored) < now then
  stored = '' -- records of a journal are applied faster than they were written, so the server's own expiry may come later
end
do
  local at = ANSWERS_AT
  while at <= #stored do
    local key, length, from = parse('>c20I4', stored, at)
    at = from + length
    answered[key] = sub(stored, from + ANSWER_HEAD_BYTES, at - 1)
  end
end

-- Its object is about to be deleted: the collector took it for one that was never committed.
local tombstoned = call('ZSCORE', prefix .. 'tombstones', segment)
-- Room comes back by retention, DeleteRecords, deleted topics and packing.
local full = most_index_bytes > 0 and index_bytes >= most_index_bytes

-- What is to be written and answered, of all runs.
local members, scored, new_logs, new_answers, parts = {}, {}, {}, {}, {}
local changed_fields, is_changed, new_ids = {}, {}, {}
local more_bytes, more_offsets = 0, 0

local transactions -- what read_transactions returned, if a run needs it

-- The run that is being worked out.
local partition, log_start, log_end, bytes, row_count, maximum, row_format
local row_base, row_position, row_length, row_maximum -- of the row that is open; row_base is nil where none is

local function end_row()
  if row_base then
    if row_maximum > maximum then
      maximum = row_maximum
    end
    local member = pack(MEMBER, partition, log_end - 1, log_start, row_format, row_base, segment, row_position, row_length,
      row_maximum, now, maximum)
    members[#members + 1] = member
    local count = #scored
    scored[count + 1], scored[count + 2] = NO_SCORE, member
    bytes, row_count, row_base = bytes + row_length, row_count + 1, nil
  end
end

-- Where in the state the batch of exactly these sequences is remembered; nil where it is not.
local function find_duplicate(state, sequences)
  local from = PRODUCER_BYTES + 1
  while true do
    from = find(state, sequences, from, true)
    if not from or (from - PRODUCER_BYTES - 1) % REMEMBERED_BYTES == 0 then
      return from
    end
    from = from + 1
  end
end

-- Whether a producer's last batch is from before unfence.lua raised the log: what it sent after that may be lost.
local function is_from_before_a_loss(state)
  local raised_to = call('HGET', prefix .. 'raised', partition)
  return raised_to and parse('>i8', state, #state - REMEMBERED_BYTES + 9) < parse('>i8', raised_to)
end

-- Kafka's error code for a batch that is no duplicate, 0 where it goes on where its producer stopped; whether it is EARLY.
-- `was_early`: it was before; so a log that was empty then may hold others' records, and still waits for the producer's first.
local function check_sequence(state, known_epoch, epoch, first, was_early)
  local expected = FIRST_SEQUENCE
  if state then
    if epoch < known_epoch then
      return INVALID_PRODUCER_EPOCH
    elseif epoch == known_epoch then
      expected = sub(state, -20, -17)
    end
  elseif log_end > 0 and not was_early then
    return 0
  end
  if first == expected then
    return 0
  end
  local is_ahead = (parse('>I4', first) - parse('>I4', expected)) % SEQUENCES < FARTHEST_AHEAD
  if is_ahead and state and is_from_before_a_loss(state) then
    return 0
  end
  return OUT_OF_ORDER_SEQUENCE_NUMBER, is_ahead and EARLY or nil
end

local function refusal(error_code, what)
  return pack(BATCH_ANSWER, error_code, -1, -1, what or 0)
end

-- The answer to an idempotent batch that is not accepted; nil if it is: then its producer's state has it.
local function judge(id, epoch, first, after, batch_maximum, was_early)
  if byte(first) >= 128 then -- negative
    return refusal(INVALID_RECORD)
  elseif epoch < 0 then
    return refusal(INVALID_PRODUCER_EPOCH)
  end
  local field = partition .. id
  local state, kept, known_epoch = producers[field], '', nil
  if state then
    known_epoch = parse('>i2', state)
    if known_epoch == epoch then
      local remembered_at = find_duplicate(state, first .. after)
      if remembered_at then
        return '\0\0' .. sub(state, remembered_at + 8, remembered_at + 23) .. string.char(DUPLICATE)
      end
    end
  end
  local opens
  if transactions and not (state and epoch < known_epoch) then
    local why, what
    why, what, opens = transactions.check(partition, field, epoch, log_end)
    if why then
      return refusal(why, what)
    end
    was_early = was_early or (opens and transactions.version == 2) -- KAFKA-18202: it begins with the first sequence
  end
  local error_code, what = check_sequence(state, known_epoch, epoch, first, was_early)
  if error_code ~= 0 then
    return refusal(error_code, what)
  end
  if opens then
    transactions.open(partition, field, id, log_end, opens)
  end
  if known_epoch == epoch and most_kept_bytes > 0 then
    kept = sub(state, math.max(PRODUCER_BYTES + 1, #state - most_kept_bytes + 1))
  end
  producers[field] = pack(STATE_OF_PRODUCER, epoch, now, kept, first, after, log_end, batch_maximum)
  if not is_changed[field] then
    is_changed[field] = true
    changed_fields[#changed_fields + 1] = field
    if not has_state[field] then
      new_ids[#new_ids + 1], new_ids[#new_ids + 2] = NO_SCORE, field
    end
  end
  return nil
end

-- Whether an answer, or any of several, is EARLY.
local function any_early(batch_answers)
  for at = BATCH_ANSWER_BYTES, #batch_answers, BATCH_ANSWER_BYTES do
    if byte(batch_answers, at) == EARLY then
      return true
    end
  end
  return false
end

-- Work out one run: what to answer, and what to write. `known`: what was answered the last time, if it is not the first.
local function work_out(index, log, known)
  local high_watermark, created, last_append, stable
  partition = partitions[index]
  log_start, high_watermark, log_end, bytes, row_count, maximum, created, last_append, stable = parse(LOG, log)
  local position, count, by_append_time, at = parse(RUN_REST, request, starts[index])
  if transactions or has_kinds or stable < high_watermark then
    transactions = transactions or read_transactions(partitions, fields, producers, has_state, now)
    transactions.unstable = stable < high_watermark and stable or nil
  end
  local append_time, bytes_before, rows_before, end_before = -1, bytes, row_count, log_end
  row_format = FORMAT
  if by_append_time == 1 then
    row_format, append_time = FORMAT + LOG_APPEND_TIME, now
  end
  local answers, part = {}, nil
  for number = 1, count do
    local length, records, batch_maximum, id, epoch, first, after, next_at = parse(BATCH, request, at)
    if by_append_time == 1 then
      batch_maximum = now
    end
    if has_kinds then
      transactions.read_kind(request, starts[index] + RUN_BYTES - PARTITION_BYTES + count * BATCH_BYTES, number)
    end
    local answer = known and sub(known, (number - 1) * BATCH_ANSWER_BYTES + 1, number * BATCH_ANSWER_BYTES)
    local was_early = answer and any_early(answer)
    if was_early then
      answer = nil
    end
    if not answer and byte(id) < 128 then
      answer = judge(id, epoch, first, after, batch_maximum, was_early)
    end
    if answer then
      end_row()
    else
      if count == 1 then
        part = pack(ONE_ANSWER, 0, log_start, log_end + records, 0, log_end, append_time, 0)
      else
        answer = pack(BATCH_ANSWER, 0, log_end, append_time, 0)
      end
      if row_base then
        row_length = row_length + length
        if batch_maximum > row_maximum then
          row_maximum = batch_maximum
        end
      else
        row_base, row_position, row_length, row_maximum = log_end, position, length, batch_maximum
      end
      log_end = log_end + records
    end
    answers[number] = answer
    position, at = position + length, next_at
  end
  end_row()
  if row_count > rows_before then
    -- A commit confirms itself: the high watermark follows the log end at once, and the last stable offset does if none is open.
    stable = log_end
    if transactions and transactions.unstable then
      stable = transactions.unstable
      transactions.ends[#members] = transactions.announced_ends(partition, log_start, log_end, stable)
    end
    local count_of_logs = #new_logs
    new_logs[count_of_logs + 1] = partition
    new_logs[count_of_logs + 2] =
      pack(LOG, log_start, log_end, log_end, bytes, row_count, maximum, created, now, stable, changed_at, LOG_FORMAT)
    high_watermark = log_end
    more_bytes, more_offsets = more_bytes + bytes - bytes_before, more_offsets + log_end - end_before
  end
  part = part or pack('>i2i8i8', 0, log_start, high_watermark) .. table.concat(answers)
  parts[index] = part
  if row_count > rows_before or not known then
    local count_of_answers = #new_answers
    new_answers[count_of_answers + 1], new_answers[count_of_answers + 2], new_answers[count_of_answers + 3] =
      partition, pack('>I4', #part), part
  end
end

-- The answer of the last time; a batch that was EARLY gets the error in its place.
local function with_early_as(error_code, known)
  local changed = {}
  for at = 1, #known, BATCH_ANSWER_BYTES do
    local answer = sub(known, at, at + BATCH_ANSWER_BYTES - 1)
    changed[#changed + 1] = any_early(answer) and refusal(error_code) or answer
  end
  return table.concat(changed)
end

for index = 1, run_count do
  local log, known = logs[index], answered[partitions[index]]
  if not log then
    parts[index] = pack('>i2i8i8', UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
  elseif known and (replays or not any_early(known)) then
    parts[index] = '\0\0' .. sub(log, 1, 16) .. known
  elseif replays then
    parts[index] = pack('>i2', KAFKA_STORAGE_ERROR) .. sub(log, 1, 16) -- it was rejected
  elseif known and (tombstoned or full) then
    local why = tombstoned and KAFKA_STORAGE_ERROR or THROTTLING_QUOTA_EXCEEDED
    parts[index] = '\0\0' .. sub(log, 1, 16) .. with_early_as(why, known)
  elseif tombstoned then
    parts[index] = pack('>i2', KAFKA_STORAGE_ERROR) .. sub(log, 1, 16)
  elseif full then
    parts[index] = pack('>i2', THROTTLING_QUOTA_EXCEEDED) .. sub(log, 1, 16)
  else
    work_out(index, log, known)
  end
end
-- Asked again after `not_after` it is refused before it looks here.
local count_ms = not_after > 0 and not_after - now + KEPT_BEYOND_MS or ANSWERS_KEPT_MS
local kept_ms = string.format('%d', count_ms + KEPT_BEYOND_MS)
if #new_answers == 0 then
  if stored ~= '' and not replays then
    -- A write, so that a caller on another connection who waits for replicas waits for the writes of the first time.
    call('PEXPIRE', answers_key, kept_ms)
  end
  return reply(parts)
end

local use = #members > 0 and call('HGET', prefix .. 'segments', segment)
local used_bytes, used_rows = 0, 0
if use then
  used_bytes, used_rows = parse(USE, use)
end

-- From here on only writes. The first is one that the server refuses when memory is short; after it none is refused.
-- The segment's use comes before its rows, and the log ends come after all that belongs to them: whatever is found after a
-- script that stopped halfway, no object that rows name is taken for an orphan.
note_change(#members, #members * ROW_MEMBER_BYTES, more_offsets)
if #members > 0 then
  call('HSET', prefix .. 'segments', segment, pack(USE, used_bytes + more_bytes, used_rows + #members))
  if not use then
    call('ZREM', prefix .. 'garbage', segment)
  end
  if transactions then
    transactions.write() -- before the rows: they must not be found without it, and be read as committed
  end
  add_members(rows_key, scored)
  add_members(prefix .. 'producer_ids', new_ids)
  for at = 1, #changed_fields, MOST_FIELDS_PER_CALL do
    local changed = {}
    for index = at, math.min(at + MOST_FIELDS_PER_CALL - 1, #changed_fields) do
      local field = changed_fields[index]
      changed[#changed + 1], changed[#changed + 2] = field, producers[field]
    end
    call('HSET', producers_key, unpack(changed))
  end
end
if stored == '' then
  call('ZADD', prefix .. 'answered', string.format('%d', now + count_ms), segment)
  call('SET', answers_key, pack('>i8', now + count_ms) .. table.concat(new_answers), 'PX', kept_ms)
else
  call('APPEND', answers_key, table.concat(new_answers))
  call('PEXPIRE', answers_key, kept_ms)
end
if #members > 0 then
  call('HSET', logs_key, unpack(new_logs))
  announce(transactions and transactions.announced(members) or members)
end
return reply(parts)
