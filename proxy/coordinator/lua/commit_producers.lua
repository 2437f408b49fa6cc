-- The batches of idempotent producers in a commit. The loader makes a function of this file, so that a plain commit creates nothing of it.
--
--   judge_producers(producers, now, expires_after, most_remembered)
--
-- `producers`: their states by field of the producers' hash, the expired ones, too; a batch that is accepted changes its producer's. A
-- producer with an open transaction does not expire.
--
-- Producer rules: ProducerAppendInfo, ProducerStateEntry of Kafka 4.x, and KAFKA-15591 for a log that never held a record.
-- Sequences are only ever compared, so they stay bytes.

local producers, now, expires_after, most_remembered = ...
local OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, UNKNOWN_PRODUCER_ID, INVALID_RECORD = 45, 47, 59, 87
local FIRST_SEQUENCE = '\0\0\0\0'
local MOST_FIELDS_PER_CALL = 1000
local DUPLICATE, EARLY = 1, 2 -- as in commit.lua
local BATCH_ANSWER = '>i2Bi8i8' -- as in commit.lua
local PRODUCER, PRODUCER_BYTES = '>i2i8', 10 -- epoch, time of the last append; then one REMEMBERED per batch
local REMEMBERED_BYTES = 24 -- first sequence and the one after the last (4 bytes each), base offset, timestamp (i64)
local STATE_OF_PRODUCER = '>c10c0c4c4i8i8' -- PRODUCER, what is remembered by then, the newest REMEMBERED
local SEQUENCES, FARTHEST_AHEAD = 2 ^ 31, 2 ^ 30

local byte, find = string.byte, string.find
local most_kept_bytes = (most_remembered - 1) * REMEMBERED_BYTES -- in front of the newest
local changed_fields, changed_count, is_changed, new_ids = {}, 0, {}, {}
local heads = {} -- PRODUCERs with the time of this commit, by epoch: few epochs are those of many producers

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
local function is_from_before_a_loss(partition, state)
  local raised_to = call('HGET', prefix .. 'raised', partition)
  return raised_to and parse('>i8', state, #state - REMEMBERED_BYTES + 9) < parse('>i8', raised_to)
end

-- Kafka's error code for a batch that is no duplicate, 0 where it goes on where its producer stopped; whether it is EARLY.
-- `was_early`: it was before; so a log that was empty then may hold others' records, and still waits for the producer's first.
local function check_sequence(partition, log_end, state, known_epoch, epoch, first, was_early)
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
  if is_ahead and state and is_from_before_a_loss(partition, state) then
    return 0
  end
  return OUT_OF_ORDER_SEQUENCE_NUMBER, is_ahead and EARLY or nil
end

local function refusal(error_code, what)
  return pack(BATCH_ANSWER, error_code, what or 0, -1, -1)
end

local touched = {}

-- The answer to an idempotent batch that is not accepted; nil if it is. The second result is TXN of the transaction that it opens.
function touched.check(partition, field, state, known_epoch, log_end, epoch, first, after, was_early, transactions)
  if byte(first) >= 128 then -- negative
    return refusal(INVALID_RECORD)
  elseif epoch < 0 then
    return refusal(INVALID_PRODUCER_EPOCH)
  end
  if known_epoch == epoch then
    local remembered_at = find_duplicate(state, first .. after)
    if remembered_at then
      local base_offset, timestamp = sub(state, remembered_at + 8, remembered_at + 15), sub(state, remembered_at + 16, remembered_at + 23)
      if transactions and transactions.is_earlier(field, epoch, parse('>i8', base_offset)) then
        return refusal(UNKNOWN_PRODUCER_ID)
      end
      return pack('>i2Bc8c8', 0, DUPLICATE, timestamp, base_offset)
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
  local error_code, what = check_sequence(partition, log_end, state, known_epoch, epoch, first, was_early)
  if error_code ~= 0 then
    return refusal(error_code, what)
  end
  return nil, opens
end

-- The answer to an idempotent batch that is not accepted; nil if it is: then its producer's state has it. `field`: of its producer.
function touched.judge(partition, field, log_end, epoch, first, after, batch_maximum, was_early, transactions)
  local state = producers[field]
  local is_listed, known_epoch, opens = state, nil, nil
  if state then
    local last_append
    known_epoch, last_append = parse(PRODUCER, state)
    if now - last_append >= expires_after and not (transactions and transactions.is_open(field)) then
      state, known_epoch = false, nil
    end
  end
  -- Nearly all batches go on where their producers stopped: then there is nothing else to be checked.
  if transactions or known_epoch ~= epoch or sub(state, -20, -17) ~= first then
    local answer
    answer, opens = touched.check(partition, field, state, known_epoch, log_end, epoch, first, after, was_early, transactions)
    if answer then
      return answer
    elseif opens then
      transactions.open(partition, field, log_end, opens)
    end
  end
  local kept = ''
  if known_epoch == epoch and most_kept_bytes > 0 then
    local kept_from = #state - most_kept_bytes + 1
    kept = sub(state, kept_from > PRODUCER_BYTES and kept_from or PRODUCER_BYTES + 1)
  end
  local head = heads[epoch]
  if not head then
    head = pack(PRODUCER, epoch, now)
    heads[epoch] = head
  end
  producers[field] = pack(STATE_OF_PRODUCER, head, kept, first, after, log_end, batch_maximum)
  if not is_changed[field] then
    is_changed[field] = true
    changed_count = changed_count + 1
    changed_fields[changed_count] = field
    if not is_listed then
      new_ids[#new_ids + 1], new_ids[#new_ids + 2] = NO_SCORE, field
    end
  end
  return nil
end

function touched.write()
  add_members(prefix .. 'producer_ids', new_ids)
  for at = 1, changed_count, MOST_FIELDS_PER_CALL do
    local changed, place = {}, 0
    for index = at, math.min(at + MOST_FIELDS_PER_CALL - 1, changed_count) do
      local field = changed_fields[index]
      changed[place + 1], changed[place + 2] = field, producers[field]
      place = place + 2
    end
    call('HSET', prefix .. 'producers', unpack(changed))
  end
end

return touched
