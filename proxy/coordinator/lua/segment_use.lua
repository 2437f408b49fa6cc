-- The bytes and number of rows of this shard that use each segment.
--
-- ARGV[2]  segments (16 bytes each)
-- Answers, per segment: i64 bytes, u32 rows.

local request = ARGV[2]
local parts = {}
for at = 1, #request, 16 do
  parts[#parts + 1] = call('HGET', prefix .. 'segments', sub(request, at, at + 15)) or pack(USE, 0, 0)
end
return reply(parts)
