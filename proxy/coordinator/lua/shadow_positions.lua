-- Up to which offsets of the shadows' logs markers were applied.
--
-- ARGV[2]  topic IDs and partitions (20 bytes each)
-- Answers, per log: u8 1 if it exists, i32 leader epoch (-1 if it is not known), i64 offset of the next marker to read.

local NOTHING_READ = pack(SHADOW, UNKNOWN, 0)

local request = ARGV[2]
local parts = {}
for at = 1, #request, PARTITION_BYTES do
  local partition = sub(request, at, at + PARTITION_BYTES - 1)
  local exists = call('HEXISTS', logs_key, partition) == 1
  parts[#parts + 1] = (exists and '\1' or '\0') .. (call('HGET', shadows_key, partition) or NOTHING_READ)
end
return reply(parts)
