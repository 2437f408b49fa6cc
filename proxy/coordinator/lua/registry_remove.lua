-- ARGV[1] name, ARGV[2] topic ID, zeros for a reservation, empty for any, ARGV[3] owner, empty for any. Answers the version,
-- which stays where the name is unknown, or is of another topic ID or another owner by now.

local entry = call('HGET', prefix .. 'topics', ARGV[1])
local topic_id, owner
if entry then
  local _, _, _, owner_bytes = parse(ENTRY, entry)
  topic_id, owner = sub(entry, 2, 17), sub(entry, ENTRY_BYTES + 1, ENTRY_BYTES + owner_bytes)
end
if entry and (ARGV[2] == '' or topic_id == ARGV[2]) and (ARGV[3] == '' or owner == ARGV[3]) then
  note_change(true)
  call('HDEL', prefix .. 'topics', ARGV[1])
  return announce()
end
return version
