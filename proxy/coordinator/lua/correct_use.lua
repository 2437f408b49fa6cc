-- Correct this shard's figures for a segment's use, if they are as the caller has seen them.
--
-- ARGV[2]  segment (16 bytes), expected USE (zeros: none), correct USE
-- Answers u8: 1 if it was as expected, and is corrected now.
--
-- A segment in use is neither garbage nor tombstoned; a segment that is not in use becomes garbage.

local segment, expected, right = sub(ARGV[2], 1, 16), sub(ARGV[2], 17, 28), sub(ARGV[2], 29, 40)
local key = prefix .. 'segments'
local NONE = pack(USE, 0, 0)

if (call('HGET', key, segment) or NONE) ~= expected then
  return reply({ '\0' })
end
if expected == right then
  return reply({ '\1' })
end
local _, rows = parse(USE, right)
begin_change()
-- Removals come first: a server without free memory allows removals, and then also the writes after them.
if rows == 0 then
  call('HDEL', key, segment)
  note_change(0)
  call('ZADD', prefix .. 'garbage', written, segment)
else
  call('ZREM', prefix .. 'garbage', segment)
  call('ZREM', prefix .. 'tombstones', segment)
  note_change(0)
  call('HSET', key, segment, right)
end
return reply({ '\1' })
