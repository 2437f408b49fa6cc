-- Create empty logs; logs that exist stay as they are.
--
-- A growing topic may have had these partitions before, in writes that were lost and given up (unfence.lua). So the new logs
-- begin after the offsets that may have been given then.
--
-- ARGV[2]  topic IDs and partitions (20 bytes each)
-- ARGV[3]  1 if the topic had fewer partitions before, else 0
-- Answers the logs that were not created because their deletion has not ended; finish it and call again.

local LOWEST_TIMESTAMP = -9007199254740991

local request, growing = ARGV[2], ARGV[3] == '\1'
local floor = growing and call('HGET', prefix .. 'raised', '')
local first = floor and parse('>i8', floor) or 0

local now = clock()
local empty = pack(LOG, first, first, 0, 0, LOWEST_TIMESTAMP, now, first, -1, changed_at, LOG_FORMAT)
local made, left_over = {}, {}
for at = 1, #request, 20 do
  local partition = sub(request, at, at + 19)
  if call('HEXISTS', logs_key, partition) == 0 then
    if is_left(partition) then
      left_over[#left_over + 1] = partition
    else
      made[#made + 1] = partition
      made[#made + 1] = empty
    end
  end
end
if #made > 0 then
  note_change(0, 0, 0, true)
  call('HSET', logs_key, unpack(made))
end
return reply(left_over)
