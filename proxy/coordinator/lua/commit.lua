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
-- Nearly all commits are plain, and the first ones of their segments. Each call creates all functions again, and that takes time for
-- each outer variable that a function uses. So runs are worked out in one loop without a function, and the functions for idempotent
-- producers (commit_producers.lua), transactions (commit_transactions.lua) and the answers of an earlier try (commit_retries.lua) are
-- created when the first run needs them.
--
-- Transactions cost a plain commit one comparison a run. A batch may also be EARLY because the marker that ends its producer's transaction
-- before it was not applied yet.

local KAFKA_STORAGE_ERROR, THROTTLING_QUOTA_EXCEEDED = 56, 89
local ANSWERS_KEPT_MS, KEPT_BEYOND_MS = 3600000, 600000 -- without a time after which it is too late, and beyond it
local ANSWERS_AT = 9 -- after the time until which they count
local MOST_FIELDS_PER_CALL = 1000

local RUN = '>c20I4I4B'
local BATCH, BATCH_BYTES, ID_AT, ID_BYTES = '>I4I4i8c8i2c4c4', 34, 16, 8
local ANSWER_HEAD_BYTES = 18 -- i16 error, i64 log start, i64 high watermark
local BATCH_ANSWER, BATCH_ANSWER_BYTES = '>i2i8i8B', 19 -- error, base offset, append time (or -1), what it is
local ONE_ANSWER = '>i2i8i8i2i8i8B' -- a head and one BATCH_ANSWER
local MEMBER = '>c20i8i8Bi8c16I4I4i8i8i8' -- topic ID and partition, then a ROW
local PRODUCER = '>i2i8' -- epoch, time of the last append; then REMEMBERED (commit_producers.lua)
local LOG_APPEND_TIME = 0x10 -- in the format of a ROW
local LOG_BEFORE = '>i8i8i8i8i8i8i8xxxxxxxxi8' -- a LOG without what a commit replaces unseen

local byte = string.byte
local request = ARGV[2]
local most_remembered, expires_after, segment, most_index_bytes, has_kinds = parse('>I4I8c16I8B', ARGV[3])
has_kinds = has_kinds == 1
local now = clock()
local answers_key, producers_key = prefix .. 'answers:' .. pass .. segment, prefix .. 'producers'

-- The logs and producers of all runs.
local partitions, positions, counts, are_by_append_time, starts, run_count = {}, {}, {}, {}, {}, 0 -- starts: of the batches of each run
local producers, fields = {}, {} -- states by field of the producers' hash, false where there is none or it has expired; the fields
do
  local at, end_of_request = 1, #request
  while at <= end_of_request do
    local partition, position, count, by_append_time, batches_at = parse(RUN, request, at)
    run_count = run_count + 1
    partitions[run_count], positions[run_count], counts[run_count] = partition, position, count
    are_by_append_time[run_count], starts[run_count] = by_append_time == 1, batches_at
    local id_at = batches_at + ID_AT
    at = batches_at + count * BATCH_BYTES
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
local more_bytes, more_offsets = 0, 0
local packed_length, part_bytes -- of the last answer, because most are equally long

-- What the functions of these names returned, if a run needs it.
local idempotent, transactions
local retries = stored ~= '' and read_retries() or nil

for index = 1, run_count do
  local partition, log = partitions[index], logs[index]
  local known = answered[partition]
  if not log then
    parts[index] = pack('>i2i8i8', UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
  elseif known and (replays or not retries.any_early(known)) then
    parts[index] = '\0\0' .. sub(log, 1, 16) .. known
  elseif replays then
    parts[index] = pack('>i2', KAFKA_STORAGE_ERROR) .. sub(log, 1, 16) -- it was rejected
  elseif tombstoned or full then
    local why = tombstoned and KAFKA_STORAGE_ERROR or THROTTLING_QUOTA_EXCEEDED
    if known then
      parts[index] = '\0\0' .. sub(log, 1, 16) .. retries.with_early_as(why, known)
    else
      parts[index] = pack('>i2', why) .. sub(log, 1, 16)
    end
  else
    local log_start, high_watermark, log_end, bytes, row_count, maximum, created, stable = parse(LOG_BEFORE, log)
    local position, count, by_append_time, at = positions[index], counts[index], are_by_append_time[index], starts[index]
    if transactions or has_kinds or stable < high_watermark then
      transactions = transactions or read_transactions(partitions, fields, producers, has_state, now)
      transactions.unstable = stable < high_watermark and stable or nil
    end
    local append_time, bytes_before, rows_before, end_before = -1, bytes, row_count, log_end
    local row_format = FORMAT
    if by_append_time then
      row_format, append_time = FORMAT + LOG_APPEND_TIME, now
    end
    local answers, part = {}, nil
    local row_base, row_position, row_length, row_maximum -- of the row that is open; row_base is nil where none is
    for number = 1, count + 1 do
      local length, records, batch_maximum, answer, next_at
      if number <= count then
        local id, epoch, first, after
        length, records, batch_maximum, id, epoch, first, after, next_at = parse(BATCH, request, at)
        if by_append_time then
          batch_maximum = now
        end
        if has_kinds then
          transactions.read_kind(request, starts[index] + count * BATCH_BYTES, number)
        end
        answer = known and sub(known, (number - 1) * BATCH_ANSWER_BYTES + 1, number * BATCH_ANSWER_BYTES)
        local was_early = answer and retries.any_early(answer)
        if was_early then
          answer = nil
        end
        if not answer and byte(id) < 128 then
          idempotent = idempotent or judge_producers(producers, has_state, now, most_remembered)
          answer = idempotent.judge(partition, log_end, id, epoch, first, after, batch_maximum, was_early, transactions)
        end
      end
      if row_base and (answer or number > count) then
        if row_maximum > maximum then
          maximum = row_maximum
        end
        local member = pack(MEMBER, partition, log_end - 1, log_start, row_format, row_base, segment, row_position, row_length,
          row_maximum, now, maximum)
        members[#members + 1] = member
        local place = #scored
        scored[place + 1], scored[place + 2] = NO_SCORE, member
        bytes, row_count, row_base = bytes + row_length, row_count + 1, nil
      end
      if number <= count then
        if not answer then
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
    end
    if row_count > rows_before then
      -- A commit confirms itself: the high watermark follows the log end at once, and the last stable offset does if none is open.
      stable = log_end
      if transactions and transactions.unstable then
        stable = transactions.unstable
        transactions.ends[#members] = transactions.announced_ends(partition, log_start, log_end, stable)
      end
      local place = #new_logs
      new_logs[place + 1] = partition
      new_logs[place + 2] =
        pack(LOG, log_start, log_end, log_end, bytes, row_count, maximum, created, now, stable, changed_at, LOG_FORMAT)
      high_watermark = log_end
      more_bytes, more_offsets = more_bytes + bytes - bytes_before, more_offsets + log_end - end_before
    end
    part = part or pack('>i2i8i8', 0, log_start, high_watermark) .. table.concat(answers)
    parts[index] = part
    if row_count > rows_before or not known then
      if part_bytes ~= #part then
        part_bytes = #part
        packed_length = pack('>I4', part_bytes)
      end
      local place = #new_answers
      new_answers[place + 1], new_answers[place + 2], new_answers[place + 3] = partition, packed_length, part
    end
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
  if idempotent then
    idempotent.write()
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
