-- The idempotent producers that one log knows, some per call; nothing is written.
--
-- ARGV[2]  topic ID and partition (20 bytes)
-- ARGV[3]  u32: about how many to look at; u64: expiry of producers in ms; the rest: where an earlier call stopped, '0' first
-- Answers u8 whether the log lives, u8 length of the place where this call stopped, that place ('0': at the end), then per
-- producer 8 bytes producer ID, i16 epoch, u32 the sequence after its last one, i64 timestamp of its last batch.
--
-- A producer that appends meanwhile may come twice.

local LAST_APPEND_AT = 3 -- in a PRODUCER

local partition = ARGV[2]
local count, expires_after, from = parse('>I4I8', ARGV[3])
local cursor = sub(ARGV[3], from)
local now = clock()

if call('HEXISTS', prefix .. 'logs', partition) == 0 then
  return reply({ '\0\1' .. '0' })
end
local stopped, found = unpack(call('HSCAN', prefix .. 'producers:' .. partition, cursor, 'COUNT', count))
local parts = { '\1' .. pack('>B', #stopped) .. stopped }
for index = 1, #found, 2 do
  local id, state = found[index], found[index + 1]
  if now - parse('>i8', state, LAST_APPEND_AT) < expires_after then
    -- The epoch begins a PRODUCER; the newest REMEMBERED, of 24 bytes, ends it.
    parts[#parts + 1] = id .. sub(state, 1, 2) .. sub(state, -20, -17) .. sub(state, -8)
  end
end
return reply(parts)
