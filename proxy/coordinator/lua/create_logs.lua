-- Let logs live, empty; those that live are left as they are.
--
-- ARGV[2]  topic IDs and partitions (20 bytes each)
-- Answers the ones that were not made because a deletion of theirs has not ended; finish it and call again.

local LOWEST_TIMESTAMP = -9007199254740991

local request = ARGV[2]

local now = clock()
local empty = pack(LOG, 0, 0, 0, 0, 0, LOWEST_TIMESTAMP, now, -1, FORMAT)
local made, left_over = {}, {}
for at = 1, #request, 20 do
  local partition = sub(request, at, at + 19)
  if call('HEXISTS', prefix .. 'logs', partition) == 0 then
    if call('EXISTS', prefix .. 'index:' .. partition) == 1 then
      left_over[#left_over + 1] = partition
    else
      made[#made + 1] = partition
      made[#made + 1] = empty
    end
  end
end
if #made > 0 then
  note_change(0)
  call('HSET', prefix .. 'logs', unpack(made))
end
return reply(left_over)
