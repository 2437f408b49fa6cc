-- A reserved topic can be used. ARGV[1] name, ARGV[2] topic ID, ARGV[3] partitions.
-- Also raises the partitions of a live topic of the same ID. Answers the version; error MISSING where neither is there.

local entry = call('HGET', prefix .. 'topics', ARGV[1])
if not entry then
  return redis.error_reply('MISSING')
end
local state, topic_id, partitions, owner_bytes = parse(ENTRY, entry)
if state == DELETING or (state == LIVE and topic_id ~= ARGV[2]) then
  return redis.error_reply('MISSING')
end
local count = state == LIVE and math.max(partitions, tonumber(ARGV[3])) or tonumber(ARGV[3])
local changed = pack(ENTRY, LIVE, ARGV[2], count, owner_bytes) .. sub(entry, ENTRY_BYTES + 1)
if changed ~= entry then
  note_change()
  call('HSET', prefix .. 'topics', ARGV[1], changed)
  return announce()
end
return version
