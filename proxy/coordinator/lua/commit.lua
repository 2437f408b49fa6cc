-- Order the batches of partition runs of one segment. Everything is worked out before the first write.
--
-- ARGV[2]  runs: topic ID and partition (20 bytes), u32 position, u32 count, then `count` times
--          u32 length, u32 records, i64 maximum timestamp, 8 bytes producer ID, i16 epoch, i32 base sequence
-- ARGV[3]  u32: batches remembered per producer; u64: expiry of producers in ms; 16 bytes: segment
-- Answers, per run: i16 error, i64 log start, i64 high watermark, then without error one BATCH_ANSWER per batch.
--
-- Producer rules: ProducerAppendInfo, ProducerStateEntry of Kafka 4.x, and KAFKA-15591 for a log that never held a record.

local OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_RECORD = 45, 47, 87
local LAST_SEQUENCE = 2147483647
local ANSWERS_KEPT_SECONDS = 3600
local MOST_PRODUCERS_SAMPLED = 16

local RUN, RUN_BYTES = '>c20I4I4', 28
local BATCH, BATCH_BYTES = '>I4I4i8c8i2i4', 30
local BATCH_ANSWER = '>i2i8i8B' -- error, base offset, append time, duplicate
local PRODUCER, PRODUCER_BYTES = '>i2i8', 10 -- epoch, time of the last append
local SEQUENCES = '>I4I4' -- first, last
local REMEMBERED, REMEMBERED_BYTES = '>I4I4i8i8', 24 -- first and last sequence, base offset, append time

local request = ARGV[2]
local most_remembered, expires_after, segment = parse('>I4I8c16', ARGV[3])
local most_remembered_bytes = most_remembered * REMEMBERED_BYTES
local now = clock()

local partitions, run_starts = {}, {}
local at = 1
while at <= #request do
  local partition, _, count = parse(RUN, request, at)
  partitions[#partitions + 1], run_starts[#run_starts + 1] = partition, at
  at = at + RUN_BYTES + count * BATCH_BYTES
end
local answers_key = prefix .. 'answers:' .. segment
local logs = call('HMGET', prefix .. 'logs', unpack(partitions))
local answered = call('HMGET', answers_key, unpack(partitions))

-- The producer as a table, or false where there is none or it has expired.
local function load_producer(partition, id)
  local state = call('HGET', prefix .. 'producers:' .. partition, id)
  if not state then
    return false
  end
  local epoch, last_append = parse(PRODUCER, state)
  if now - last_append >= expires_after then
    return false
  end
  return { epoch = epoch, batches = sub(state, PRODUCER_BYTES + 1) }
end

-- Base offset and append time of the remembered batch of exactly these sequences; nil where there is none.
local function find_duplicate(batches, sequences)
  for from = 1, #batches, REMEMBERED_BYTES do
    if sub(batches, from, from + 7) == sequences then
      local _, _, base, append_time = parse(REMEMBERED, batches, from)
      return base, append_time
    end
  end
end

local function last_sequence_of(base_sequence, records)
  local last = base_sequence + records - 1
  return last <= LAST_SEQUENCE and last or last - LAST_SEQUENCE - 1
end

-- Kafka's error code for a batch that is no duplicate, 0 where it continues what the producer wrote.
local function check_sequence(producer, epoch, base_sequence, log_end)
  if not producer then
    return (log_end == 0 and base_sequence ~= 0) and OUT_OF_ORDER_SEQUENCE_NUMBER or 0
  elseif epoch < producer.epoch then
    return INVALID_PRODUCER_EPOCH
  elseif epoch > producer.epoch then
    return base_sequence ~= 0 and OUT_OF_ORDER_SEQUENCE_NUMBER or 0
  end
  local _, last = parse(SEQUENCES, producer.batches, #producer.batches - REMEMBERED_BYTES + 1)
  local expected = last == LAST_SEQUENCE and 0 or last + 1
  return base_sequence ~= expected and OUT_OF_ORDER_SEQUENCE_NUMBER or 0
end

-- Work out one run: what to answer, and what to write (nothing is written here).
local function accept_run(partition, log, start)
  local log_start, _, log_end, bytes, row_count, maximum = parse(LOG, log)
  local bytes_before = bytes
  local _, position, count = parse(RUN, request, start)
  local run = { partition = partition, producers = {}, new_producers = 0, rows = {} }
  local producers, rows, answers = run.producers, run.rows, {}
  local row_base, row_position, row_length, row_maximum

  local function end_row()
    if row_base then
      maximum = math.max(maximum, row_maximum)
      rows[#rows + 1] = pack(ROW, 1, row_base, log_end - 1, segment, row_position, row_length, row_maximum, now, maximum)
      bytes, row_count, row_base = bytes + row_length, row_count + 1, nil
    end
  end

  for index = 0, count - 1 do
    local length, records, batch_maximum, id, epoch, base_sequence =
      parse(BATCH, request, start + RUN_BYTES + index * BATCH_BYTES)
    local error_code, duplicate_base, append_time = 0, nil, now
    if string.byte(id) < 128 then -- not negative: the producer is idempotent
      local producer = producers[id]
      if producer == nil then
        producer = load_producer(partition, id)
        producers[id] = producer
      end
      if base_sequence < 0 then
        error_code = INVALID_RECORD
      elseif epoch < 0 then
        error_code = INVALID_PRODUCER_EPOCH
      else
        local sequences = pack(SEQUENCES, base_sequence, last_sequence_of(base_sequence, records))
        if producer and producer.epoch == epoch then
          duplicate_base, append_time = find_duplicate(producer.batches, sequences)
        end
        if not duplicate_base then
          append_time = now
          error_code = check_sequence(producer, epoch, base_sequence, log_end)
          if error_code == 0 then
            local batches = (producer and producer.epoch == epoch) and producer.batches or ''
            batches = batches .. sequences .. pack('>i8i8', log_end, now)
            if not producer then
              run.new_producers = run.new_producers + 1
            end
            producers[id] = { epoch = epoch, batches = sub(batches, -most_remembered_bytes), changed = true }
          end
        end
      end
    end
    if error_code ~= 0 then
      end_row()
      answers[#answers + 1] = pack(BATCH_ANSWER, error_code, -1, -1, 0)
    elseif duplicate_base then
      end_row()
      answers[#answers + 1] = pack(BATCH_ANSWER, 0, duplicate_base, append_time, 1)
    else
      answers[#answers + 1] = pack(BATCH_ANSWER, 0, log_end, now, 0)
      if row_base then
        row_length, row_maximum = row_length + length, math.max(row_maximum, batch_maximum)
      else
        row_base, row_position, row_length, row_maximum = log_end, position, length, batch_maximum
      end
      log_end = log_end + records
    end
    position = position + length
  end
  end_row()

  -- Without a journal a commit confirms itself: the high watermark follows the log end at once.
  run.more_bytes = bytes - bytes_before
  run.log_start, run.new_high_watermark = log_start, log_end
  run.log = pack(LOG, log_start, log_end, log_end, bytes, row_count, maximum)
  run.answers = table.concat(answers)
  return run
end

local parts, accepted = {}, {}
local more_rows, more_bytes = 0, 0
for index, partition in ipairs(partitions) do
  local log = logs[index]
  if not log then
    parts[index] = pack('>i2i8i8', UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
  elseif answered[index] then
    local log_start, high_watermark = parse(LOG, log)
    parts[index] = pack('>i2i8i8', 0, log_start, high_watermark) .. answered[index]
  else
    local run = accept_run(partition, log, run_starts[index])
    accepted[#accepted + 1] = run
    more_rows, more_bytes = more_rows + #run.rows, more_bytes + run.more_bytes
    parts[index] = pack('>i2i8i8', 0, run.log_start, run.new_high_watermark) .. run.answers
  end
end
if #accepted == 0 then
  return reply(parts)
end

-- From here on only writes. The first is one that the server refuses when memory is short; after it none is refused.
note_change(more_rows)

local function write_producers(run)
  local key = prefix .. 'producers:' .. run.partition
  local fields = {}
  for id, producer in pairs(run.producers) do
    if producer and producer.changed then
      fields[#fields + 1] = id
      fields[#fields + 1] = pack(PRODUCER, producer.epoch, now) .. producer.batches
      if #fields == 1000 then
        call('HSET', key, unpack(fields))
        fields = {}
      end
    end
  end
  if #fields > 0 then
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
for index, run in ipairs(accepted) do
  new_answers[2 * index - 1], new_answers[2 * index] = run.partition, run.answers
  if #run.rows > 0 then
    new_logs[#new_logs + 1], new_logs[#new_logs + 2] = run.partition, run.log
    for _, row in ipairs(run.rows) do
      call('ZADD', prefix .. 'index:' .. run.partition, (parse('>i8', row, ROW_LAST_AT)), row)
    end
    write_producers(run)
    announcement[#announcement + 1] =
      pack('>c20i8i8I4', run.partition, run.log_start, run.new_high_watermark, #run.rows) .. table.concat(run.rows)
  end
end
call('HSET', answers_key, unpack(new_answers))
call('EXPIRE', answers_key, ANSWERS_KEPT_SECONDS)
if more_rows > 0 then
  call('HSET', prefix .. 'logs', unpack(new_logs))
  local use = call('HGET', prefix .. 'segments', segment)
  local used_bytes, used_rows = 0, 0
  if use then
    used_bytes, used_rows = parse(USE, use)
  else
    call('ZREM', prefix .. 'garbage', segment)
  end
  call('HSET', prefix .. 'segments', segment, pack(USE, used_bytes + more_bytes, used_rows + more_rows))
  call('PUBLISH', prefix .. 'announcements', table.concat(announcement))
end
return reply(parts)
