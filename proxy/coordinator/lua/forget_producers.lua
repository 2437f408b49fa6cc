-- Drop the state of producers that have expired, a bounded number looked at per call.
--
-- ARGV[2]  requests: topic ID and partition (20 bytes), u64 cursor (0 to begin with)
-- ARGV[3]  u32: producers to look at, about, in all logs together; u64: expiry of producers in ms
-- Answers, per request: u8 whether there is more to look at, u64 cursor to go on with then, u32 how many were dropped.

local REQUEST, REQUEST_BYTES = '>c20I8', 28
local PRODUCER = '>i2i8' -- epoch, time of the last append

local request = ARGV[2]
local budget, expires_after = parse('>I4I8', ARGV[3])
local now = clock()

local parts, expired = {}, {}
for at = 1, #request, REQUEST_BYTES do
  local partition, cursor = parse(REQUEST, request, at)
  local key, dropped, more = prefix .. 'producers:' .. partition, 0, true
  if budget > 0 then
    local scanned = call('HSCAN', key, string.format('%.0f', cursor), 'COUNT', budget)
    for index = 1, #scanned[2], 2 do
      local _, last_append = parse(PRODUCER, scanned[2][index + 1])
      if now - last_append >= expires_after then
        expired[#expired + 1] = { key, scanned[2][index] }
        dropped = dropped + 1
      end
    end
    budget, cursor = budget - #scanned[2] / 2, tonumber(scanned[1])
    more = cursor ~= 0
  end
  parts[#parts + 1] = pack('>BI8I4', more and 1 or 0, cursor, dropped)
end
if #expired > 0 then
  begin_change()
  for _, one in ipairs(expired) do
    call('HDEL', one[1], one[2])
  end
  note_change(0, 0)
end
return reply(parts)
