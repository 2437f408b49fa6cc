-- Give up what this shard has lost, and go on so that no offset is given twice that anybody is known to have been told of.
--
-- ARGV[2]  u64: offsets that may have been given beyond what anybody knows
-- ARGV[3]  topic IDs and partitions (20 bytes each) that are to live here
-- Answers u64 by how much log ends were raised, u32 how many logs were, u32 how many had to be made anew.
--
-- All logs of the shard are raised, by all that was lost, as nobody knows which of them had the offsets; readers skip the gap.
-- Producers are kept: a batch that survived is a duplicate when it is sent again. A producer whose next batch is ahead of what is
-- known of it, as those between are lost, goes on with it (commit.lua).
-- One call for all logs, however many: half of them would be a shard that nobody can tell from a healthy one.

local LOWEST_TIMESTAMP = -9007199254740991

local gap, partitions = parse('>I8', ARGV[2]), ARGV[3]

local _, offsets_lost, offsets_skipped = sum_lost(all_lost)
local raise = offsets_lost + offsets_skipped + gap
local floor = offsets_given + raise
local now = clock()

local changed, raised_to, announcements, raised, made = {}, {}, {}, 0, 0
local function put(partition, log)
  changed[#changed + 1], changed[#changed + 2] = partition, log
  raised_to[#raised_to + 1], raised_to[#raised_to + 2] = partition, sub(log, 17, 24) -- the log end
  announcements[#announcements + 1] = announcement_without_rows(partition, parse('>i8i8', log))
end

local logs = call('HGETALL', logs_key)
local lives_here = {}
for index = 1, #logs, 2 do
  local start, _, log_end, bytes, rows, maximum, created, last_append, _, position = parse(LOG, logs[index + 1])
  -- Rows of a commit that stopped halfway: the log end did not move, but what was written belongs together.
  for _, member in ipairs(members_from(logs[index], log_end, nil, -1)) do
    for _, _, last, _, _, length, row_maximum in each_row(member) do
      log_end, bytes, rows, maximum = last + 1, bytes + length, rows + 1, math.max(maximum, row_maximum)
    end
  end
  log_end = log_end + raise
  lives_here[logs[index]] = true
  put(logs[index], pack(LOG, start, log_end, log_end, bytes, rows, maximum, created, last_append, log_end, position, LOG_FORMAT))
  raised = raised + 1
end
for at = 1, #partitions, 20 do
  local partition = sub(partitions, at, at + 19)
  if not lives_here[partition] then
    put(partition, pack(LOG, floor, floor, floor, 0, 0, LOWEST_TIMESTAMP, now, -1, floor, NO_POSITION, LOG_FORMAT))
    made = made + 1
  end
end

give_up(all_lost, raise)
must_last = written
call('HSET', meta_key, 'floor', floor, 'state', packed_state())
for at = 1, #changed, 1000 do
  call('HSET', logs_key, unpack(changed, at, math.min(at + 999, #changed)))
  call('HSET', prefix .. 'raised', unpack(raised_to, at, math.min(at + 999, #changed)))
end
for at = 1, #announcements, 1000 do
  announce({ table.concat(announcements, '', at, math.min(at + 999, #announcements)) })
end
return reply({ pack('>I8I4I4', raise, raised, made) })
