-- Note that partitions were added to transactions of version 1 (AddPartitionsToTxn), so that their producers may append.
--
-- ARGV[2]  requests: topic ID and partition (20 bytes), producer ID (8 bytes), i16 epoch, i64 the end that the shadow's log had after
--          the partition was added (TXN's `from`)
-- Answers, per request: u8 ENLISTED, WAIT (the markers before that end have not all been applied: call again when they have), ENDED (a
-- marker of the producer at that end or after it was applied: the transaction is over), GONE (no such log), or FENCED (the producer
-- has a higher epoch).

local ENLISTED, WAIT, ENDED, GONE, FENCED = 0, 1, 2, 3, 4
local REQUEST, REQUEST_BYTES = '>c20c8i2i8', 38

local request = ARGV[2]
local now = clock()
local producers_key = prefix .. 'producers'

-- What was asked of one partition; TXN of the producer, if it changes.
local function enlist(partition, field, epoch, from)
  local log = call('HGET', logs_key, partition)
  if not log then
    return GONE
  end
  local producer, state = call('HGET', producers_key, field), call('HGET', transactions_key, field)
  local known_epoch, first, known_from, marker, coordinator_epoch = UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN
  if state then
    known_epoch, first, known_from, marker, coordinator_epoch = parse(TXN, state)
  end
  if epoch < known_epoch or (producer and epoch < parse('>i2', producer)) then
    return FENCED
  elseif marker >= from then
    return ENDED
  elseif next_of_shadow(call('HGET', shadows_key, partition)) < from or (first >= 0 and epoch > known_epoch) then
    return WAIT
  end
  if epoch == known_epoch then
    from = math.max(from, known_from)
  end
  local _, high_watermark, _, _, _, _, stable = parse(LOG, log)
  return ENLISTED, pack(TXN, epoch, first, from, marker, coordinator_epoch, now), stable == high_watermark
end

local parts, changed, ids, followed = {}, {}, {}, {}
for at = 1, #request, REQUEST_BYTES do
  local partition, id, epoch, from = parse(REQUEST, request, at)
  local field = partition .. id
  local answer, state, is_stable = enlist(partition, field, epoch, from)
  if state then
    changed[#changed + 1], changed[#changed + 2] = field, state
    ids[#ids + 1], ids[#ids + 2] = NO_SCORE, field
    if is_stable then
      followed[#followed + 1], followed[#followed + 2] = now, partition
    end
  end
  parts[#parts + 1] = string.char(answer)
end
if #changed > 0 then
  note_change(0, 0, 0, true)
  add_members(prefix .. 'producer_ids', ids)
  add_members(followed_key, followed)
  call('HSET', transactions_key, unpack(changed)) -- a call has a few hundred requests at most
end
return reply(parts)
