-- Whether segments have been tombstoned for a while.
--
-- ARGV[2]  segments (16 bytes each)
-- ARGV[3]  u64: age in ms; u32: not used
-- Answers u8 for each: 0 if this shard has no tombstone of it, 1 if the tombstone is as old, 2 if it is younger.

local request = ARGV[2]
local until_time = time_of_ages() - parse('>I8', ARGV[3])
local parts = {}
for at = 1, #request, 16 do
  local since = call('ZSCORE', prefix .. 'tombstones', sub(request, at, at + 15))
  parts[#parts + 1] = not since and '\0' or tonumber(since) <= until_time and '\1' or '\2'
end
return reply(parts)
