-- Give up what this shard has lost, and continue so that no offset that any process may know is given twice.
--
-- ARGV[2]  u64: offsets that may have been given in addition to all known ones
-- ARGV[3]  topic IDs and partitions (20 bytes each) of logs that must exist in this shard
-- Answers u64 offsets that log ends were raised by, u32 number of raised logs, u32 number of recreated logs.
--
-- All logs of the shard are raised by the whole loss, because it is unknown which logs had the lost offsets. Readers skip the gap.
-- The state of producers is kept: if a batch that survived is sent again, it is a duplicate. A producer whose batches were lost
-- continues with its next batch, although its sequence is ahead of the known one (commit.lua).
-- One call raises all logs: a shard with only half of them raised could not be distinguished from a healthy shard.

local LOWEST_TIMESTAMP = -9007199254740991

local gap, partitions = parse('>I8', ARGV[2]), ARGV[3]

local _, offsets_lost, offsets_skipped = sum_lost(all_lost)
local raise = offsets_lost + offsets_skipped + gap
local floor = offsets_given + raise
local now = clock()

local changed, raised_to, announcements, raised, made = {}, {}, {}, 0, 0
local function put(partition, log)
  changed[#changed + 1], changed[#changed + 2] = partition, log
  raised_to[#raised_to + 1], raised_to[#raised_to + 2] = partition, sub(log, 9, 16) -- the log end
  local start, high_watermark, _, _, _, _, stable = parse(LOG, log)
  announcements[#announcements + 1] = announced_ends(partition, start, high_watermark, stable)
end

local logs = call('HGETALL', logs_key)
local lives_here = {}
for index = 1, #logs, 2 do
  local start, log_end, bytes, rows, maximum, created, _, last_append = parse(LOG, logs[index + 1])
  -- Rows of a commit that stopped halfway: the log end did not move, but what was written belongs together.
  for _, member in ipairs(members_from(logs[index], log_end, nil, -1)) do
    for _, _, last, _, _, length, row_maximum in each_row(member) do
      log_end, bytes, rows, maximum = last + 1, bytes + length, rows + 1, math.max(maximum, row_maximum)
    end
  end
  log_end = log_end + raise
  lives_here[logs[index]] = true
  -- Open transactions stay open: their markers, or an operator, end them.
  put(logs[index], pack(LOG, start, log_end, bytes, rows, maximum, created, first_unstable(logs[index], log_end), last_append,
    changed_at, LOG_FORMAT))
  raised = raised + 1
end
for at = 1, #partitions, 20 do
  local partition = sub(partitions, at, at + 19)
  if not lives_here[partition] then
    put(partition, pack(LOG, floor, floor, 0, 0, LOWEST_TIMESTAMP, now, floor, -1, changed_at, LOG_FORMAT))
    made = made + 1
  end
end

give_up(all_lost, raise)
must_last = written
call('HSET', meta_key, 'state', packed_state())
call('HSET', prefix .. 'raised', '', pack('>i8', floor)) -- a partition of no log: snapshots have it, too
for at = 1, #changed, 1000 do
  call('HSET', logs_key, unpack(changed, at, math.min(at + 999, #changed)))
  call('HSET', prefix .. 'raised', unpack(raised_to, at, math.min(at + 999, #changed)))
end
for at = 1, #announcements, 1000 do
  announce({ table.concat(announcements, '', at, math.min(at + 999, #announcements)) })
end
return reply({ pack('>I8I4I4', raise, raised, made) })
