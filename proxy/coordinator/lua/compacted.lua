-- Up to where logs have been compacted.
--
-- ARGV[2]  topic IDs and partitions (20 bytes each)
-- Answers i64 for each: the first offset that was not yet, 0 where none was.

local request = ARGV[2]
local parts = {}
for at = 1, #request, 20 do
  parts[#parts + 1] = call('HGET', prefix .. 'compacted', sub(request, at, at + 19)) or pack('>i8', 0)
end
return reply(parts)
