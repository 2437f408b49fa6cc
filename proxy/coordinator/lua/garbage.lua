-- Segments that no row of this shard has used for a while, the oldest first.
--
-- ARGV[2]  name of the sorted set: garbage, or tombstones
-- ARGV[3]  u64: age in ms; u32: maximum number
-- Answers 16 bytes for each.

local age, most = parse('>I8I4', ARGV[3])
local until_time = time_of_ages() - age
return reply(call('ZRANGEBYSCORE', prefix .. ARGV[2], '-inf', until_time, 'LIMIT', 0, most))
