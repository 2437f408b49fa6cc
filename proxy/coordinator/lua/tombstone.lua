-- Reject commits of segments from now on, unless this shard uses them.
--
-- ARGV[2]  segments (16 bytes each)
-- Answers u8 for each: 1 if it is tombstoned (now, or before), 0 if it is in use.
--
-- A segment in use is removed from the garbage of this shard: it becomes garbage again when its last use ends.

local request = ARGV[2]
local now = math.max(clock(), written) -- a clock that has gone back must not make it older
local segments, parts, freed = {}, {}, 0
for at = 1, #request, 16 do
  local segment = sub(request, at, at + 15)
  segments[#segments + 1] = segment
  -- Its object is deleted after this: the writes that freed it must not be lost from now on.
  freed = math.max(freed, tonumber(call('ZSCORE', prefix .. 'garbage', segment) or 0))
end
-- A removal comes first: a server without free memory allows removals, and then also the writes after them.
begin_change()
call('ZREM', prefix .. 'garbage', unpack(segments))
note_change(0, 0, 0, freed)
for _, segment in ipairs(segments) do
  if call('HEXISTS', prefix .. 'segments', segment) == 1 then
    parts[#parts + 1] = '\0'
  else
    call('ZADD', prefix .. 'tombstones', 'NX', now, segment)
    parts[#parts + 1] = '\1'
  end
end
return reply(parts)
