-- The end of the compacted part of logs.
--
-- ARGV[2]  topic IDs and partitions (20 bytes each)
-- Answers i64 for each: the first offset that is not compacted yet, 0 if none is.

local request = ARGV[2]
local parts = {}
for at = 1, #request, 20 do
  parts[#parts + 1] = call('HGET', prefix .. 'compacted', sub(request, at, at + 19)) or pack('>i8', 0)
end
return reply(parts)
