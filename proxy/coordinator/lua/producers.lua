-- The idempotent producers that one log knows, some per call; nothing is written.
--
-- ARGV[2]  topic ID and partition (20 bytes)
-- ARGV[3]  u32: number to look at; u64: expiry of producers in ms; the rest: '0' first, then the place where the call before
--          stopped
-- Answers u8 1 if the log exists, u8 length of the place where this call stopped, that place ('0': at the end), then per
-- producer 8 bytes producer ID, i16 epoch, u32 the sequence after its last one, i64 timestamp of its last batch.

local LAST_APPEND_AT = 3 -- in a PRODUCER
local SEQUENCES = 2 ^ 31
local ID_AT = PARTITION_BYTES + 1 -- in a field of the producers' hash
local BEGINNING = '0' -- and end

local partition = ARGV[2]
local count, expires_after, from = parse('>I4I8', ARGV[3])
local place = sub(ARGV[3], from)
local now = clock()

if call('HEXISTS', logs_key, partition) == 0 then
  return reply({ '\0\1' .. BEGINNING })
end
local first = place == BEGINNING and '[' .. partition or '(' .. partition .. place
local ids = call('ZRANGEBYLEX', prefix .. 'producer_ids', first, end_of(partition), 'LIMIT', '0', count)
local stopped = #ids == count and sub(ids[#ids], ID_AT) or BEGINNING
local parts = { '\1' .. pack('>B', #stopped) .. stopped }
local states = #ids > 0 and call('HMGET', prefix .. 'producers', unpack(ids)) or {}
local known = #ids > 0 and call('HMGET', transactions_key, unpack(ids)) or {}
for index, state in ipairs(states) do
  local transaction = known[index]
  local is_open = transaction and is_open_transaction(transaction)
  if state and (is_open or now - parse('>i8', state, LAST_APPEND_AT) < expires_after) then
    local sequence, timestamp, first, coordinator_epoch = UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN
    -- The newest REMEMBERED, of 24 bytes, ends the state. A marker leaves one without a batch (apply_markers.lua).
    if parse('>i4', state, #state - 23) >= 0 then
      sequence, timestamp = (parse('>I4', state, #state - 19) - 1) % SEQUENCES, parse('>i8', state, #state - 7)
    end
    if transaction then
      local _
      _, first, _, _, coordinator_epoch = parse(TXN, transaction)
    end
    parts[#parts + 1] = sub(ids[index], ID_AT) .. sub(state, 1, 2)
      .. pack('>i4i8i4i8', sequence, timestamp, coordinator_epoch, first)
  end
end
return reply(parts)
