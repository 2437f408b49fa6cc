-- The segments that this shard uses, some per call; nothing is written.
--
-- ARGV[2]  u32: approximate number to look at; the rest: where an earlier call stopped, '0' first
-- Answers u8 length of the place where this call stopped, that place ('0': at the end), then segment (16 bytes) and USE of each.
--
-- A segment that is added or removed meanwhile may be missing or not, and a segment may come twice.

local count, from = parse('>I4', ARGV[2])
local stopped, found = unpack(call('HSCAN', prefix .. 'segments', sub(ARGV[2], from), 'COUNT', count))
return reply({ pack('>B', #stopped), stopped, table.concat(found) })
