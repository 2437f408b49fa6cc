-- ARGV[1] name, ARGV[2] topic ID, empty for any. Answers the version, which stays where the name is unknown, is of another
-- topic ID by now, or is already being deleted.

local entry = call('HGET', prefix .. 'topics', ARGV[1])
local state, topic_id
if entry then
  state, topic_id = parse(ENTRY, entry)
end
if entry and state ~= DELETING and (ARGV[2] == '' or topic_id == ARGV[2]) then
  note_change(true)
  call('HSET', prefix .. 'topics', ARGV[1], pack('>B', DELETING) .. sub(entry, 2))
  return announce()
end
return version
