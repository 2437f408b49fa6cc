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
-- Nearly all commits are plain, and the first ones of their segments; nearly all runs are one batch. Each call creates all functions
-- again, and that takes time for each outer variable that a function uses. So runs are worked out in one loop without a function, and
-- the functions for idempotent producers (commit_producers.lua), transactions (commit_transactions.lua) and the answers of an earlier
-- try (commit_retries.lua) are created when the first run needs them. A call of a function costs as much as several table accesses, so
-- each run and its first batch are parsed by one, with no field that is not used: each costs time, and so does each x of a format.
--
-- Transactions cost a plain commit one comparison a run. A batch may also be EARLY because the marker that ends its producer's transaction
-- before it was not applied yet.

local KAFKA_STORAGE_ERROR, THROTTLING_QUOTA_EXCEEDED = 56, 89
local ANSWERS_KEPT_MS, KEPT_BEYOND_MS = 3600000, 600000 -- without a time after which it is too late, and beyond it
local ANSWERS_AT = 9 -- after the time until which they count
local ANSWERS = '>I4I4' -- how many, and the bytes of each; then all topic IDs and partitions, then all answers
local MOST_FIELDS_PER_CALL = 1000

local BATCH, BATCH_BYTES = '>I4I4i8c8i2c4c4', 34
local RUN_BYTES = PARTITION_BYTES + 9
local RUN_AND_BATCH = '>I4I4BI4I4i8c8i2c4c4' -- a run without its partition; then its first batch
local RUN_AND_PLAIN_BATCH = '>I4I4BI4I4i8' -- as before, without the fields of idempotent batches
local NO_ID = '\255\255\255\255\255\255\255\255'
local BATCH_ANSWER, BATCH_ANSWER_BYTES = '>i2i8i8B', 19 -- error, base offset, append time (or -1), what it is
local ONE_ANSWER = '>i2i8i8i2i8i8B' -- a head and one BATCH_ANSWER
local MEMBER = '>c20i8i8Bi8c16I4I4i8i8i8' -- topic ID and partition, then a ROW
local LOG_APPEND_TIME = 0x10 -- in the format of a ROW
local LOG_BEFORE = '>i8i8i8i8i8i8i8i8i8' -- a LOG without what a commit replaces unseen, except for the last append

local byte = string.byte
local request = ARGV[2]
local most_remembered, expires_after, segment, most_index_bytes, has_kinds = parse('>I4I8c16I8B', ARGV[3])
has_kinds = has_kinds == 1
local now = clock()
local answers_key, producers_key = prefix .. 'answers:' .. pass .. segment, prefix .. 'producers'

-- The logs and producers of all runs.
local partitions, starts, run_count = {}, {}, 0 -- starts: of the runs, in the request
local fields, field_count = {}, 0 -- of the producers' hash
local first_fields = {} -- of each run's first batch; nil where that is not idempotent
local producers, expired = {}, {} -- their states by field: false where there is none or it has expired; those that have expired
do
  local COUNT_AT, ID_AT, ID_BYTES = PARTITION_BYTES + 4, RUN_BYTES + 16, 8
  local at, end_of_request = 1, #request
  while at <= end_of_request do
    local partition, count = sub(request, at, at + PARTITION_BYTES - 1), parse('>I4', request, at + COUNT_AT)
    run_count = run_count + 1
    partitions[run_count], starts[run_count] = partition, at
    local id_at = at + ID_AT
    local is_first = true
    at = at + RUN_BYTES + count * BATCH_BYTES
    while id_at < at do
      local id = sub(request, id_at, id_at + ID_BYTES - 1)
      if id ~= NO_ID and byte(id) < 128 then -- not negative: the producer is idempotent
        local field = partition .. id
        if is_first then
          first_fields[run_count] = field
        end
        if producers[field] == nil then
          producers[field] = false
          field_count = field_count + 1
          fields[field_count] = field
        end
      end
      is_first = false
      id_at = id_at + BATCH_BYTES
    end
    if has_kinds then
      at = at + count * 9 -- KIND_BYTES of commit_transactions.lua
    end
  end
end
local logs = call('HMGET', logs_key, unpack(partitions))
for at = 1, field_count, MOST_FIELDS_PER_CALL do
  local LAST_APPEND_AT = 3 -- in PRODUCER: epoch, time of the last append; then REMEMBERED (commit_producers.lua)
  local last = math.min(at + MOST_FIELDS_PER_CALL - 1, field_count)
  local states = call('HMGET', producers_key, unpack(fields, at, last))
  for index = at, last do
    local state = states[index - at + 1]
    if state then
      if now - parse('>i8', state, LAST_APPEND_AT) < expires_after then
        producers[fields[index]] = state
      else
        expired[fields[index]] = state
      end
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
  local HEAD_BYTES = 18 -- i16 error, i64 log start, i64 high watermark
  local at = ANSWERS_AT
  while at <= #stored do
    local count, part_bytes, from = parse(ANSWERS, stored, at)
    at = from + count * PARTITION_BYTES
    for key_at = from, at - 1, PARTITION_BYTES do
      answered[sub(stored, key_at, key_at + PARTITION_BYTES - 1)] = sub(stored, at + HEAD_BYTES, at + part_bytes - 1)
      at = at + part_bytes
    end
  end
end

-- Its object is about to be deleted: the collector took it for one that was never committed.
local tombstoned = call('ZSCORE', prefix .. 'tombstones', segment)
-- Room comes back by retention, DeleteRecords, deleted topics and packing.
local full = most_index_bytes > 0 and index_bytes >= most_index_bytes

-- What is to be written and answered, of all runs.
local members, scored, member_count, new_logs, log_count = {}, {}, 0, {}, 0
local parts, new_at, new_count = {}, {}, 0 -- new_at: the numbers of the runs that have a new answer
local part_bytes, are_alike -- of the new answers
local more_bytes, more_offsets = 0, 0

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
    local log_start, high_watermark, log_end, bytes, row_count, maximum, created, _, stable = parse(LOG_BEFORE, log)
    local field, at = first_fields[index], starts[index] -- field: of the batch's producer; nil or false if it is not idempotent
    local position, count, by_append_time, length, records, batch_maximum, id, epoch, first, after =
      parse(field and RUN_AND_BATCH or RUN_AND_PLAIN_BATCH, request, at + PARTITION_BYTES)
    at = at + RUN_BYTES + BATCH_BYTES
    by_append_time = by_append_time == 1
    if transactions or has_kinds or stable < high_watermark then
      transactions = transactions or read_transactions(partitions, fields, producers, expired, now)
      transactions.unstable = stable < high_watermark and stable or nil
    end
    local append_time, bytes_before, rows_before, end_before = -1, bytes, row_count, log_end
    local row_format = FORMAT
    if by_append_time then
      row_format, append_time, batch_maximum = FORMAT + LOG_APPEND_TIME, now, now
    end
    local kinds_at = at + (count - 1) * BATCH_BYTES
    local number, part, answers = 1, nil, nil -- answers: of the batches, unless the run is one that is appended
    local row_base, row_position, row_length, row_maximum -- of the row that is open; row_base is nil where none is
    while true do
      if has_kinds then
        transactions.read_kind(request, kinds_at, number)
      end
      local answer, was_early
      if known then
        answer = sub(known, (number - 1) * BATCH_ANSWER_BYTES + 1, number * BATCH_ANSWER_BYTES)
        was_early = retries.any_early(answer)
        if was_early then
          answer = nil
        end
      end
      if field and not answer then
        idempotent = idempotent or judge_producers(producers, expired, now, most_remembered)
        answer = idempotent.judge(partition, field, log_end, id, epoch, first, after, batch_maximum, was_early, transactions)
      end
      local is_appended = not answer
      if is_appended then
        if count == 1 then
          part = pack(ONE_ANSWER, 0, log_start, log_end + records, 0, log_end, append_time, 0)
        else
          answer = pack(BATCH_ANSWER, 0, log_end, append_time, 0)
        end
        if not row_base then
          row_base, row_position, row_length, row_maximum = log_end, position, length, batch_maximum
        else
          row_length = row_length + length
          if batch_maximum > row_maximum then
            row_maximum = batch_maximum
          end
        end
        log_end = log_end + records
      end
      if row_base and (number == count or not is_appended) then
        if row_maximum > maximum then
          maximum = row_maximum
        end
        local member = pack(MEMBER, partition, log_end - 1, log_start, row_format, row_base, segment, row_position, row_length,
          row_maximum, now, maximum)
        member_count = member_count + 1
        members[member_count] = member
        scored[2 * member_count - 1], scored[2 * member_count] = NO_SCORE, member
        bytes, row_count, row_base = bytes + row_length, row_count + 1, nil
      end
      if answer then
        answers = answers or {}
        answers[number] = answer
      end
      if number == count then
        break
      end
      number, position = number + 1, position + length
      length, records, batch_maximum, id, epoch, first, after, at = parse(BATCH, request, at)
      field = id ~= NO_ID and byte(id) < 128 and partition .. id
      if by_append_time then
        batch_maximum = now
      end
    end
    if row_count > rows_before then
      -- A commit confirms itself: the high watermark follows the log end at once, and the last stable offset does if none is open.
      stable = log_end
      if transactions and transactions.unstable then
        stable = transactions.unstable
        transactions.ends[member_count] = transactions.announced_ends(partition, log_start, log_end, stable)
      end
      log_count = log_count + 1
      new_logs[2 * log_count - 1] = partition
      new_logs[2 * log_count] =
        pack(LOG, log_start, log_end, log_end, bytes, row_count, maximum, created, now, stable, changed_at, LOG_FORMAT)
      high_watermark = log_end
      more_bytes, more_offsets = more_bytes + bytes - bytes_before, more_offsets + log_end - end_before
    end
    part = part or pack('>i2i8i8', 0, log_start, high_watermark) .. table.concat(answers)
    parts[index] = part
    if row_count > rows_before or not known then
      new_count = new_count + 1
      new_at[new_count] = index
      if #part ~= part_bytes then
        are_alike, part_bytes = not part_bytes, #part
      end
    end
  end
end
-- Asked again after `not_after` it is refused before it looks here.
local count_ms = not_after > 0 and not_after - now + KEPT_BEYOND_MS or ANSWERS_KEPT_MS
local kept_ms = string.format('%d', count_ms + KEPT_BEYOND_MS)
if new_count == 0 then
  if stored ~= '' and not replays then
    -- A write, so that a caller on another connection who waits for replicas waits for the writes of the first time.
    call('PEXPIRE', answers_key, kept_ms)
  end
  return reply(parts)
end

local use = member_count > 0 and call('HGET', prefix .. 'segments', segment)
local used_bytes, used_rows = 0, 0
if use then
  used_bytes, used_rows = parse(USE, use)
end

local answer_text = table.concat(parts)
local new_partitions, new_parts, new_text = partitions, parts, answer_text
if new_count < run_count then
  new_partitions, new_parts = {}, {}
  for number = 1, new_count do
    new_partitions[number], new_parts[number] = partitions[new_at[number]], parts[new_at[number]]
  end
  new_text = table.concat(new_parts)
end
local new_answers
if are_alike then
  new_answers = pack(ANSWERS, new_count, part_bytes) .. table.concat(new_partitions) .. new_text
else
  local each = {}
  for number = 1, new_count do
    each[number] = pack(ANSWERS, 1, #new_parts[number]) .. new_partitions[number] .. new_parts[number]
  end
  new_answers = table.concat(each)
end

-- From here on only writes. The first is one that the server refuses when memory is short; after it none is refused.
-- The segment's use comes before its rows, and the log ends come after all that belongs to them: whatever is found after a
-- script that stopped halfway, no object that rows name is taken for an orphan.
note_change(member_count, member_count * ROW_MEMBER_BYTES, more_offsets)
if member_count > 0 then
  call('HSET', prefix .. 'segments', segment, pack(USE, used_bytes + more_bytes, used_rows + member_count))
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
  call('SET', answers_key, pack('>i8', now + count_ms) .. new_answers, 'PX', kept_ms)
else
  call('APPEND', answers_key, new_answers)
  call('PEXPIRE', answers_key, kept_ms)
end
if member_count > 0 then
  call('HSET', logs_key, unpack(new_logs))
  announce(transactions and transactions.announced(members) or members)
end
return reply({ answer_text })
