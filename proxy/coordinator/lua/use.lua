-- Whether segments are in use.
--
-- ARGV[2]  segments (16 bytes each)
-- Answers u8 for each: 1 if rows of this shard use it.

local request = ARGV[2]
local parts = {}
for at = 1, #request, 16 do
  parts[#parts + 1] = call('HEXISTS', prefix .. 'segments', sub(request, at, at + 15)) == 1 and '\1' or '\0'
end
return reply(parts)
