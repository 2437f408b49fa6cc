-- Forget tombstones: the objects are deleted, or stay because another shard uses them.
--
-- ARGV[2]  segments (16 bytes each)

local request = ARGV[2]
local removed = 0
begin_change()
for at = 1, #request, 16 do
  removed = removed + call('ZREM', prefix .. 'tombstones', sub(request, at, at + 15))
end
if removed > 0 then
  note_change(0)
end
return reply({})
