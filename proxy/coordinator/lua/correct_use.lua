-- Set what this shard says of a segment's use, if that is what the caller has seen.
--
-- ARGV[2]  segment (16 bytes), USE that is expected (zeros: none), USE that is right
-- Answers u8: 1 where it was so, and is right now.
--
-- What is in use is neither garbage nor tombstoned; what is not becomes garbage.

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
-- Removals come first: the server allows them when memory is short, and then also the writes after them.
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
