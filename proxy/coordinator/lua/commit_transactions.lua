-- The transactions that a commit touches. The loader makes one function of transactions.lua and this file, so that a plain commit
-- creates nothing of it.
--
--   read_transactions(partitions, fields, now)
--
-- `fields`: of the producers' hash, for all producers of the commit.

local partitions, fields, now = ...
local NOT_ENOUGH_REPLICAS, INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS = 19, 48, 51
local EARLY = 2 -- as in commit.lua
local MOST_FIELDS_PER_CALL = 1000

local KIND, KIND_BYTES = '>Bi8', 9 -- transaction version, and the offset from which on a marker may end the transaction

-- unstable: the first offset of the oldest open transaction of the log whose run is worked out; nil if none is open. version: of the
-- transaction of the batch that is judged; 0 if it is not transactional. ends: what announcements say, by the number of the log's last row.
local touched = { announced_ends = announced_ends, unstable = nil, version = 0, ends = {} }
local markers_from = UNKNOWN -- of that batch
local known, markers_read = {}, {} -- TXN by field; by partition, the offset up to which the markers of its shadow were applied
local changed, opened, followed = {}, {}, {}

for at = 1, #fields, MOST_FIELDS_PER_CALL do
  local last = math.min(at + MOST_FIELDS_PER_CALL - 1, #fields)
  for index, state in ipairs(call('HMGET', transactions_key, unpack(fields, at, last))) do
    known[fields[at + index - 1]] = state
  end
end
for index, position in ipairs(call('HMGET', shadows_key, unpack(partitions))) do
  markers_read[partitions[index]] = next_of_shadow(position)
end

-- Note the kind of the next batch to be judged. `at`: where the kinds of its run begin.
function touched.read_kind(request, at, number)
  touched.version, markers_from = parse(KIND, request, at + (number - 1) * KIND_BYTES)
end

function touched.is_open(field)
  return known[field] and is_open_transaction(known[field])
end

-- Whether a batch of version 1 has the sequences of one at this offset that belongs to an earlier transaction of the producer. It is no
-- retry: librdkafka gives the sequences of batches that it still has to retry when it aborts to other records (decision 0260).
function touched.is_earlier(field, epoch, base_offset)
  if touched.version ~= 1 or not known[field] then
    return false
  end
  local known_epoch, first, from, marker = parse(TXN, known[field])
  if first >= 0 then
    return base_offset < first
  end
  return known_epoch == epoch and marker < from
end

-- Nil if the batch may be appended; else Kafka's error code, and whether it is EARLY. The third result is TXN of the transaction that
-- the batch opens.
function touched.check(partition, field, epoch, log_end)
  local version, from = touched.version, markers_from
  local known_epoch, first, known_from, marker, coordinator_epoch = UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN
  if known[field] then
    known_epoch, first, known_from, marker, coordinator_epoch = parse(TXN, known[field])
  end
  if version == 1 then
    from = known_epoch == epoch and known_from or UNKNOWN
  end
  if first >= 0 then
    if version == 0 then
      return INVALID_TXN_STATE
    elseif epoch > known_epoch or markers_read[partition] < from then
      return version == 1 and NOT_ENOUGH_REPLICAS or CONCURRENT_TRANSACTIONS, EARLY
    end
    return nil
  elseif version == 0 then
    return nil
  elseif from < 0 or marker >= from then
    return INVALID_TXN_STATE
  end
  return nil, nil, pack(TXN, epoch, log_end, from, marker, coordinator_epoch, now)
end

-- Note the transaction that an accepted batch opens.
function touched.open(partition, field, log_end, state)
  known[field] = state
  changed[#changed + 1], changed[#changed + 2] = field, state
  opened[#opened + 1], opened[#opened + 2] = NO_SCORE, partition .. pack('>i8', log_end) .. sub(field, PARTITION_BYTES + 1)
  if not touched.unstable then
    touched.unstable = log_end
    followed[#followed + 1], followed[#followed + 2] = FOLLOWED_ALWAYS, partition
  end
end

-- The new rows with the ends of their logs in between, as they are announced.
function touched.announced(members)
  local entries = {}
  for index = 1, #members do
    entries[#entries + 1] = members[index]
    entries[#entries + 1] = touched.ends[index]
  end
  return entries
end

function touched.write()
  add_members(open_key, opened)
  add_members(followed_key, followed)
  for at = 1, #changed, MOST_FIELDS_PER_CALL do
    call('HSET', transactions_key, unpack(changed, at, math.min(at + MOST_FIELDS_PER_CALL - 1, #changed)))
  end
end

return touched
