-- Give up what this shard has lost, and go on so that no offset is given twice that anybody is known to have been told of.
--
-- ARGV[2]  KNOWN from outside of the store
-- ARGV[3]  u64: offsets that may have been given beyond what anybody knows
-- ARGV[4]  topic IDs and partitions (20 bytes each) that are to live here
-- Answers u64 by how much log ends were raised, u32 how many logs were, u32 how many had to be made anew.
--
-- All logs of the shard are raised, as nobody knows which of them had the offsets that were lost; readers skip the gap.
-- Producers are forgotten: what is known of them is older than their newest batches, which would be refused for ever.
-- One call for all logs, however many: half of them would be a shard that nobody can tell from a healthy one.

local LOWEST_TIMESTAMP = -9007199254740991
local MOST_ACCEPTED = 64

local outside, gap, partitions = ARGV[2], parse('>I8', ARGV[3]), ARGV[4]

local known = call('HGET', meta_key, 'known') or ''
for at = 1, #outside, KNOWN_BYTES do
  known = with_known(known, parse(KNOWN, outside, at))
end
if meta[1] then
  known = with_known(known, incarnation, sequence, offsets_given)
end
local highest_sequence, highest_offsets = sequence, offsets_given
local accepted = call('HGET', meta_key, 'accepted') or ''
for at = 1, #known, KNOWN_BYTES do
  local one, one_sequence, one_offsets = parse(KNOWN, known, at)
  highest_sequence, highest_offsets = math.max(highest_sequence, one_sequence), math.max(highest_offsets, one_offsets)
  accepted = accepted .. pack(ACCEPTED, one, one_sequence)
end
local raise, floor = highest_offsets - offsets_given + gap, highest_offsets + gap
local now = clock()

local changed, announcements, raised, made = {}, {}, 0, 0
local function put(partition, log)
  changed[#changed + 1], changed[#changed + 2] = partition, log
  announcements[#announcements + 1] = partition .. sub(log, 1, 16) .. pack('>I4', 0)
end

local logs = call('HGETALL', prefix .. 'logs')
local lives_here = {}
for index = 1, #logs, 2 do
  local start, _, log_end, bytes, rows, maximum, created, last_append = parse(LOG, logs[index + 1])
  -- Rows of a commit that stopped halfway: the log end did not move, but what was written belongs together.
  for _, member in ipairs(call('ZRANGEBYSCORE', prefix .. 'index:' .. logs[index], log_end, '+inf')) do
    for _, _, last, _, _, length, row_maximum in each_row(member) do
      log_end, bytes, rows, maximum = last + 1, bytes + length, rows + 1, math.max(maximum, row_maximum)
    end
  end
  log_end = log_end + raise
  lives_here[logs[index]] = true
  put(logs[index], pack(LOG, start, log_end, log_end, bytes, rows, maximum, created, last_append, FORMAT))
  raised = raised + 1
end
for at = 1, #partitions, 20 do
  local partition = sub(partitions, at, at + 19)
  if not lives_here[partition] then
    put(partition, pack(LOG, floor, floor, floor, 0, 0, LOWEST_TIMESTAMP, now, -1, FORMAT))
    made = made + 1
  end
end

-- A removal comes first: the server allows it when memory is short, and then also the writes after it.
begin_change()
call('HDEL', meta_key, 'fenced', 'known', 'settling')
incarnation, sequence, offsets_given, life = new_incarnation, highest_sequence + 1, floor, server_life() or NO_LIFE
call('HSET', meta_key, 'incarnation', incarnation, 'sequence', sequence, 'shards', expected_shards, 'rows', index_rows,
  'index_bytes', index_bytes, 'offsets', offsets_given, 'floor', floor, 'life', life, 'lives', pack(LIFE, life, sequence),
  'accepted', sub(accepted, -MOST_ACCEPTED * ACCEPTED_BYTES))
for at = 1, #changed, 1000 do
  call('HSET', prefix .. 'logs', unpack(changed, at, math.min(at + 999, #changed)))
end
for index = 1, #changed, 2 do
  call('UNLINK', prefix .. 'producers:' .. changed[index])
end
for at = 1, #announcements, 1000 do
  announce({ table.concat(announcements, '', at, math.min(at + 999, #announcements)) })
end
return reply({ pack('>I8I4I4', raise, raised, made) })
