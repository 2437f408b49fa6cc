-- Order the batches of partition runs of one segment. Everything is worked out before the first write.
--
-- ARGV[2]  runs: topic ID and partition (20 bytes), u32 position, u32 count, u8 whether it is under LogAppendTime, then
--          `count` times
--          u32 length, u32 records, i64 maximum timestamp, 8 bytes producer ID, i16 epoch, u32 first sequence, u32 the
--          sequence after the last, as the producer counts (2147483647, then 0)
-- ARGV[3]  u32: batches remembered per producer; u64: expiry of producers in ms; 16 bytes: segment; u64: bytes of the
--          shard's indexes at which commits are refused (0: never)
-- Answers, per run: i16 error, i64 log start, i64 high watermark, then without error one BATCH_ANSWER per batch.
--
-- A retry gets the answers of the first time, but what was EARLY then is judged again: a batch whose sequence is beyond the
-- one expected, as its producer sent what comes between to another proxy. Where it can't be judged, it is answered why.
--
-- Producer rules: ProducerAppendInfo, ProducerStateEntry of Kafka 4.x, and KAFKA-15591 for a log that never held a record.
-- Sequences are only ever compared, so they stay bytes.

local OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, KAFKA_STORAGE_ERROR, INVALID_RECORD = 45, 47, 56, 87
local THROTTLING_QUOTA_EXCEEDED = 89
local FIRST_SEQUENCE = '\0\0\0\0'
local ANSWERS_KEPT_MS, KEPT_BEYOND_MS = 3600000, 600000 -- without a time after which it is too late, and beyond it
local MOST_PRODUCERS_SAMPLED = 16
local MOST_FIELDS_PER_WRITE = 1000

local RUN = '>c20I4I4B'
local BATCH, BATCH_BYTES = '>I4I4i8c8i2c8', 34
local BATCH_ANSWER, BATCH_ANSWER_BYTES = '>i2i8i8B', 19 -- error, base offset, append time (or -1), what it is
local DUPLICATE, EARLY = 1, 2
local NO_TIME = string.rep('\255', 8)
local PRODUCER, PRODUCER_BYTES = '>i2i8', 10 -- epoch, time of the last append; then REMEMBERED
local REMEMBERED_BYTES = 24 -- first sequence and the one after the last (4 bytes each), base offset, timestamp (i64)
local SEQUENCES, FARTHEST_AHEAD = 2 ^ 31, 2 ^ 30
local LOG_APPEND_TIME = 0x10 -- in the first byte of a ROW

local request = ARGV[2]
local most_remembered, expires_after, segment, most_index_bytes = parse('>I4I8c16I8', ARGV[3])
local most_remembered_bytes = most_remembered * REMEMBERED_BYTES
local now = clock()
local packed_now = pack('>i8', now)

local partitions, positions, counts, append_times, batches_at = {}, {}, {}, {}, {}
local at, run_count = 1, 0
while at <= #request do
  run_count = run_count + 1
  partitions[run_count], positions[run_count], counts[run_count], append_times[run_count], at = parse(RUN, request, at)
  batches_at[run_count] = at
  at = at + counts[run_count] * BATCH_BYTES
end
local answers_key = prefix .. 'answers:' .. segment
local index_prefix, producers_prefix = prefix .. 'index:', prefix .. 'producers:'
local logs = call('HMGET', prefix .. 'logs', unpack(partitions))

-- What an earlier try of this commit answered, by topic ID and partition. There rarely was one, so this is a string that
-- is quick to append to rather than a hash.
local answered = {}
local stored = call('GET', answers_key) or ''
at = 1
while at <= #stored do
  local key, length, from = parse('>c20I4', stored, at)
  at = from + length
  answered[key] = sub(stored, from, at - 1)
end

-- Its object is about to be deleted: the collector took it for one that was never committed.
local tombstoned = call('ZSCORE', prefix .. 'tombstones', segment)
-- Room comes back by retention, DeleteRecords, deleted topics and packing.
local full = most_index_bytes > 0 and index_bytes >= most_index_bytes

-- The run that is being worked out.
local partition, log_start, log_end, bytes, row_count, maximum, created
local rows, row_ends, answers
local producers, changed_producers, new_producers -- by ID: state, or false where there is none; IDs; how many of them
local row_format, append_time -- by whether the run is under LogAppendTime; the time as it is answered
local row_base, row_position, row_length, row_maximum -- of the row that is open; row_base is nil where none is

local function end_row()
  if row_base then
    if row_maximum > maximum then
      maximum = row_maximum
    end
    rows[#rows + 1] = pack(ROW, row_format, row_base, log_end - 1, segment, row_position, row_length, row_maximum, now, maximum)
    row_ends[#row_ends + 1] = log_end - 1
    bytes, row_count, row_base = bytes + row_length, row_count + 1, nil
  end
end

local function accept(position, length, records, batch_maximum)
  answers[#answers + 1] = '\0\0' .. pack('>i8', log_end) .. append_time .. '\0'
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

local function refuse(error_code, what)
  end_row()
  answers[#answers + 1] = pack(BATCH_ANSWER, error_code, -1, -1, what or 0)
end

-- The producer's state, false where there is none or it has expired.
local function load_producer(id)
  local state = call('HGET', producers_prefix .. partition, id)
  if state and now - parse('>i8', state, 3) >= expires_after then
    state = false
  end
  producers[id] = state
  return state
end

-- Where in the state the batch of exactly these sequences is remembered; nil where it is not.
local function find_duplicate(state, sequences)
  local from = PRODUCER_BYTES + 1
  while true do
    from = string.find(state, sequences, from, true)
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
local function check_sequence(state, epoch, first, was_early)
  local expected = FIRST_SEQUENCE
  if state then
    local known_epoch = parse('>i2', state)
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

local function judge_idempotent(id, epoch, sequences, position, length, records, batch_maximum, was_early)
  if string.byte(sequences) >= 128 then -- negative
    return refuse(INVALID_RECORD)
  elseif epoch < 0 then
    return refuse(INVALID_PRODUCER_EPOCH)
  end
  local state = producers[id]
  if state == nil then
    state = load_producer(id)
  end
  local same_epoch = state and parse('>i2', state) == epoch
  local remembered_at = same_epoch and find_duplicate(state, sequences)
  if remembered_at then
    end_row()
    answers[#answers + 1] = '\0\0' .. sub(state, remembered_at + 8, remembered_at + 23) .. string.char(DUPLICATE)
    return
  end
  local error_code, what = check_sequence(state, epoch, sub(sequences, 1, 4), was_early)
  if error_code ~= 0 then
    return refuse(error_code, what)
  end
  local remembered = sequences .. pack('>i8i8', log_end, batch_maximum)
  if same_epoch then
    remembered = sub(sub(state, PRODUCER_BYTES + 1) .. remembered, -most_remembered_bytes)
  end
  if not state then
    new_producers = new_producers + 1
  end
  producers[id] = pack('>i2', epoch) .. packed_now .. remembered
  changed_producers[id] = true
  accept(position, length, records, batch_maximum)
end

-- Whether an answer, or any of several, is EARLY.
local function any_early(batch_answers)
  for at = BATCH_ANSWER_BYTES, #batch_answers, BATCH_ANSWER_BYTES do
    if string.byte(batch_answers, at) == EARLY then
      return true
    end
  end
  return false
end

-- Work out one run: what to answer, and what to write. `known`: what was answered the last time, if it is not the first.
local function work_out(index, log, known)
  local _
  partition = partitions[index]
  log_start, _, log_end, bytes, row_count, maximum, created = parse(LOG, log)
  rows, row_ends, answers, producers, changed_producers, new_producers = {}, {}, {}, {}, {}, 0
  local bytes_before, log_end_before, position, from = bytes, log_end, positions[index], batches_at[index]
  local by_append_time = append_times[index] == 1
  row_format, append_time = FORMAT, NO_TIME
  if by_append_time then
    row_format, append_time = FORMAT + LOG_APPEND_TIME, packed_now
  end
  for number = 1, counts[index] do
    local length, records, batch_maximum, id, epoch, sequences, next_at = parse(BATCH, request, from)
    if by_append_time then
      batch_maximum = now
    end
    local answer = known and sub(known, (number - 1) * BATCH_ANSWER_BYTES + 1, number * BATCH_ANSWER_BYTES)
    if answer and not any_early(answer) then
      end_row()
      answers[number] = answer
    elseif string.byte(id) >= 128 then -- negative: the producer is not idempotent
      accept(position, length, records, batch_maximum)
    else
      judge_idempotent(id, epoch, sequences, position, length, records, batch_maximum, answer ~= nil)
    end
    position, from = position + length, next_at
  end
  end_row()
  return {
    partition = partition,
    -- Without a journal a commit confirms itself: the high watermark follows the log end at once.
    log = pack(LOG, log_start, log_end, log_end, bytes, row_count, maximum, created, now, FORMAT),
    more_bytes = bytes - bytes_before,
    more_offsets = log_end - log_end_before,
    answers = #answers == 1 and answers[1] or table.concat(answers),
    rows = rows,
    row_ends = row_ends,
    producers = producers,
    changed_producers = changed_producers,
    new_producers = new_producers,
  }
end

-- What was answered the last time, but for what was EARLY, which is answered the error.
local function with_early_as(error_code, known)
  local changed = {}
  for at = 1, #known, BATCH_ANSWER_BYTES do
    local answer = sub(known, at, at + BATCH_ANSWER_BYTES - 1)
    changed[#changed + 1] = any_early(answer) and pack(BATCH_ANSWER, error_code, -1, -1, 0) or answer
  end
  return table.concat(changed)
end

-- Whether rows lie where the next batch would: a commit of an older release stopped halfway, or somebody wrote past the scripts.
local function has_rows_beyond(key, log)
  local _, _, end_offset = parse(LOG, log)
  return call('ZCOUNT', index_prefix .. key, end_offset, '+inf') > 0, end_offset
end

local parts, accepted = {}, {}
local more_rows, more_bytes, more_offsets = 0, 0, 0
for index = 1, run_count do
  local log, known = logs[index], answered[partitions[index]]
  if not log then
    parts[index] = pack('>i2i8i8', UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
  elseif known and not any_early(known) then
    parts[index] = '\0\0' .. sub(log, 1, 16) .. known
  elseif known and (tombstoned or full) then
    local why = tombstoned and KAFKA_STORAGE_ERROR or THROTTLING_QUOTA_EXCEEDED
    parts[index] = '\0\0' .. sub(log, 1, 16) .. with_early_as(why, known)
  elseif tombstoned then
    parts[index] = pack('>i2', KAFKA_STORAGE_ERROR) .. sub(log, 1, 16)
  elseif full then
    parts[index] = pack('>i2', THROTTLING_QUOTA_EXCEEDED) .. sub(log, 1, 16)
  else
    local beyond, end_offset = has_rows_beyond(partitions[index], log)
    if beyond then
      return fence(string.format('the index of one of its logs has rows at or beyond its log end offset %d', end_offset))
    end
    local run = work_out(index, log, known)
    if #run.rows > 0 or not known then
      accepted[#accepted + 1] = run
    end
    more_rows, more_bytes = more_rows + #run.rows, more_bytes + run.more_bytes
    more_offsets = more_offsets + run.more_offsets
    parts[index] = '\0\0' .. sub(run.log, 1, 16) .. run.answers
  end
end
-- Asked again after `not_after` it is refused before it looks here.
local kept_ms = not_after > 0 and not_after - now + KEPT_BEYOND_MS or ANSWERS_KEPT_MS
if #accepted == 0 then
  if stored ~= '' then
    -- A write, so that a caller on another connection who waits for replicas waits for the writes of the first time.
    call('PEXPIRE', answers_key, string.format('%d', kept_ms))
  end
  return reply(parts)
end

local use = more_rows > 0 and call('HGET', prefix .. 'segments', segment)
local used_bytes, used_rows = 0, 0
if use then
  used_bytes, used_rows = parse(USE, use)
end

-- From here on only writes. The first is one that the server refuses when memory is short; after it none is refused.
-- The segment's use comes before its rows, and the log ends come after all that belongs to them: whatever is found after a
-- script that stopped halfway, no object that rows name is taken for an orphan.
note_change(more_rows, more_rows * ROW_MEMBER_BYTES, more_offsets)
if more_rows > 0 then
  call('HSET', prefix .. 'segments', segment, pack(USE, used_bytes + more_bytes, used_rows + more_rows))
  if not use then
    call('ZREM', prefix .. 'garbage', segment)
  end
end

local function write_producers(run)
  local key = producers_prefix .. run.partition
  local fields, count = {}, 0
  for id in pairs(run.changed_producers) do
    fields[count + 1], fields[count + 2] = id, run.producers[id]
    count = count + 2
    if count == MOST_FIELDS_PER_WRITE then
      call('HSET', key, unpack(fields))
      fields, count = {}, 0
    end
  end
  if count > 0 then
    call('HSET', key, unpack(fields))
  end
  if run.new_producers == 0 then
    return
  end
  -- Two are looked at for each that is added, so that those which expired never make up more than half for long.
  local sample = call('HRANDFIELD', key, math.min(2 * run.new_producers, MOST_PRODUCERS_SAMPLED), 'WITHVALUES')
  for index = 1, #sample, 2 do
    local _, last_append = parse(PRODUCER, sample[index + 1])
    if now - last_append >= expires_after then
      call('HDEL', key, sample[index])
    end
  end
end

local new_logs, new_answers, announcement = {}, {}, {}
for index = 1, #accepted do
  local run = accepted[index]
  local key, new_rows, row_ends_of_run = run.partition, run.rows, run.row_ends
  local row_total = #new_rows
  new_answers[index] = key .. pack('>I4', #run.answers) .. run.answers
  if row_total > 0 then
    new_logs[#new_logs + 1] = key
    new_logs[#new_logs + 1] = run.log
    local index_key = index_prefix .. key
    for number = 1, row_total do
      call('ZADD', index_key, row_ends_of_run[number], new_rows[number])
    end
    if next(run.changed_producers) then
      write_producers(run)
    end
    local packed_rows = row_total == 1 and new_rows[1] or table.concat(new_rows)
    announcement[#announcement + 1] = key .. sub(run.log, 1, 16) .. pack('>I4', row_total) .. packed_rows
  end
end
call('APPEND', answers_key, table.concat(new_answers))
call('PEXPIRE', answers_key, string.format('%d', kept_ms))
if more_rows > 0 then
  call('HSET', prefix .. 'logs', unpack(new_logs))
  announce(announcement)
end
return reply(parts)
