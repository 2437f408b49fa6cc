-- Order the batches of partition runs of one segment. Everything is worked out before the first write.
--
-- ARGV[2]  runs: topic ID and partition (20 bytes), u32 count, then `count` times
--          8 bytes producer ID, u32 position, u8 whether it is under LogAppendTime, u32 length, u32 records, i64 maximum timestamp,
--          i16 epoch, u32 first sequence, u32 the sequence after the last, as the producer counts (2147483647, then 0); if there are
--          transactional batches, then `count` times u8 transaction version (0 if the batch is not transactional), i64 the offset in
--          the shadow's log from which on a marker may end the transaction (only of version 2)
-- ARGV[3]  u32: batches remembered per producer; u64: expiry of producers in ms; 16 bytes: segment; u64: bytes of the
--          shard's indexes at which commits are refused (0: never); u8 1 if there are transactional batches
-- Answers, per run: i64 log start, i64 high watermark, i16 error, then without error one BATCH_ANSWER per batch.
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
-- each run's first batch is parsed by one, with no field that is not used: each costs time, and so does each x of a format. To pack a
-- number costs more than to parse it. So what is the same for all runs of a commit is packed once, and layouts have it in one piece.
--
-- Transactions cost a plain commit one comparison a run. A batch may also be EARLY because the marker that ends its producer's transaction
-- before it was not applied yet.

local KAFKA_STORAGE_ERROR, THROTTLING_QUOTA_EXCEEDED = 56, 89
local LEFT_OVER_MS = 604800000 -- more than a copy of a view is older than the journal's start
local ANSWERS_KEPT_MS, KEPT_BEYOND_MS = 3600000, 600000 -- without a time after which it is too late, and beyond it
local ANSWERS_AT = 9 -- after the time until which they count
local ANSWERS = '>I4I4' -- how many, and the bytes of each; then all topic IDs and partitions, then all answers
local MOST_FIELDS_PER_CALL = 1000

local ID_BYTES, BATCH_BYTES = 8, 39
local BATCH = '>I4BI4I4i8i2c4c4' -- after the producer ID
local PLAIN_BATCH = '>I4BI4I4i8' -- as before, without the fields of idempotent batches
local NO_ID = '\255\255\255\255\255\255\255\255'
local HEAD = '>i8i8i2' -- of the answer to a run
local BATCH_ANSWER, BATCH_ANSWER_BYTES = '>i2Bi8i8', 19 -- error, what it is, append time (or -1), base offset
local ONE_ANSWER = '>i8i8c13i8' -- a HEAD and one BATCH_ANSWER; `appended` is what has the same bytes
local MEMBER = '>c20i8i8i8c25I4I4i8i8' -- topic ID and partition, then a ROW; `row_kind` is what has the same bytes
local LOG_APPEND_TIME = 0x10 -- in the format of a ROW
local LOG_BEFORE = '>i8i8i8i8i8i8i8' -- a LOG without what a commit replaces unseen
local LOG_AFTER = '>i8i8i8i8i8i8i8c17' -- a LOG; `log_tail` is what has the same bytes

local byte = string.byte
local request = ARGV[2]
local most_remembered, expires_after, segment, most_index_bytes, has_kinds = parse('>I4I8c16I8B', ARGV[3])
has_kinds = has_kinds == 1
local now = clock()
local answers_key, producers_key = prefix .. 'answers:' .. pass .. segment, prefix .. 'producers'

-- The logs and producers of all runs.
local partitions, counts, starts, run_count = {}, {}, {}, 0 -- counts: of the runs' batches; starts: of these, in the request
local fields, field_count = {}, 0 -- of the producers' hash
local first_fields = {} -- of each run's first batch; nil where that is not idempotent
local producers = {} -- their states by field; false where there is none
do
  local RUN_AND_ID, RUN_BYTES = '>c20I4c8', PARTITION_BYTES + 4 -- a run, and the producer ID of its first batch
  local at, end_of_request = 1, #request
  while at <= end_of_request do
    local partition, count, id = parse(RUN_AND_ID, request, at)
    run_count = run_count + 1
    local id_at = at + RUN_BYTES
    partitions[run_count], counts[run_count], starts[run_count] = partition, count, id_at
    local is_first = true
    at = id_at + count * BATCH_BYTES
    while true do
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
      if id_at >= at then
        break
      end
      id = sub(request, id_at, id_at + ID_BYTES - 1)
    end
    if has_kinds then
      at = at + count * 9 -- KIND_BYTES of commit_transactions.lua
    end
  end
end
local logs = call('HMGET', logs_key, unpack(partitions))
for at = 1, field_count, MOST_FIELDS_PER_CALL do
  local last = math.min(at + MOST_FIELDS_PER_CALL - 1, field_count)
  local states = call('HMGET', producers_key, unpack(fields, at, last))
  for index = at, last do
    producers[fields[index]] = states[index - at + 1]
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
  local HEAD_BYTES = 18
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

-- Bytes that are the same for many runs: last append, change and format of logs; format, segment and append time of rows, and what
-- answers have between high watermark and base offset, both as for the last run (`is_stamped`: 1 if that is under LogAppendTime).
local log_tail = pack('>i8i8B', now, changed_at, LOG_FORMAT)
local row_kind, appended, is_stamped

-- What the functions of these names returned, if a run needs it.
local idempotent, transactions
local retries = stored ~= '' and read_retries() or nil

for index = 1, run_count do
  local partition, log = partitions[index], logs[index]
  local known = answered[partition]
  if not log then
    parts[index] = pack(HEAD, -1, -1, UNKNOWN_TOPIC_OR_PARTITION)
  elseif known and (replays or not retries.any_early(known)) then
    parts[index] = sub(log, 1, 16) .. '\0\0' .. known
  elseif replays then
    parts[index] = sub(log, 1, 16) .. pack('>i2', KAFKA_STORAGE_ERROR) -- it was rejected
  elseif tombstoned or full then
    local why = tombstoned and KAFKA_STORAGE_ERROR or THROTTLING_QUOTA_EXCEEDED
    if known then
      parts[index] = sub(log, 1, 16) .. '\0\0' .. retries.with_early_as(why, known)
    else
      parts[index] = sub(log, 1, 16) .. pack('>i2', why)
    end
  else
    local log_start, log_end, bytes, row_count, maximum, created, stable = parse(LOG_BEFORE, log)
    local count, at = counts[index], starts[index]
    local field = first_fields[index] -- of the batch's producer; nil or false if it is not idempotent
    local position, by_append_time, length, records, batch_maximum, epoch, first, after =
      parse(field and BATCH or PLAIN_BATCH, request, at + ID_BYTES)
    at = at + BATCH_BYTES
    if transactions or has_kinds or stable < log_end then
      transactions = transactions or read_transactions(partitions, fields, now)
      transactions.unstable = stable < log_end and stable or nil
    end
    local bytes_before, rows_before, end_before = bytes, row_count, log_end
    if by_append_time ~= is_stamped then
      is_stamped = by_append_time
      row_kind = pack('>Bc16i8', FORMAT + LOG_APPEND_TIME * is_stamped, segment, now)
      appended = pack('>i2i2Bi8', 0, 0, 0, is_stamped == 1 and now or -1)
    end
    if is_stamped == 1 then
      batch_maximum = now
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
        idempotent = idempotent or judge_producers(producers, now, expires_after, most_remembered)
        answer = idempotent.judge(partition, field, log_end, epoch, first, after, batch_maximum, was_early, transactions)
      end
      local is_appended = not answer
      if is_appended then
        if count == 1 then
          part = pack(ONE_ANSWER, log_start, log_end + records, appended, log_end)
        else
          answer = pack('>c11i8', sub(appended, 3), log_end)
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
        local member = pack(MEMBER, partition, log_end - 1, row_base, log_start, row_kind, row_position, row_length, row_maximum, maximum)
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
      number = number + 1
      local id = sub(request, at, at + ID_BYTES - 1)
      position, by_append_time, length, records, batch_maximum, epoch, first, after, at = parse(BATCH, request, at + ID_BYTES)
      field = id ~= NO_ID and byte(id) < 128 and partition .. id
      if is_stamped == 1 then
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
      new_logs[2 * log_count] = pack(LOG_AFTER, log_start, log_end, bytes, row_count, maximum, created, stable, log_tail)
      more_bytes, more_offsets = more_bytes + bytes - bytes_before, more_offsets + log_end - end_before
    end
    part = part or pack(HEAD, log_start, log_end, 0) .. table.concat(answers)
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
-- A record that is applied later, to an older copy of this shard, must find them. So a view forgets them by its own time
-- (forget_answers.lua), and the server's expiry only removes what nobody knows any more.
local kept_ms = string.format('%d', incarnation == JOURNAL_INCARNATION and LEFT_OVER_MS or count_ms + KEPT_BEYOND_MS)
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
  if incarnation == JOURNAL_INCARNATION then
    call('ZADD', prefix .. 'answered', string.format('%d', now + count_ms), segment)
  end
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
