-- ARGV[1] name, ARGV[2] topic ID, empty for any. Answers the version, which stays where the name is unknown, is of another
-- topic ID by now, or is already being deleted.

local entry = call('HGET', prefix .. 'topics', ARGV[1])
local state, topic_id
if entry then
  state, topic_id = parse(ENTRY, entry)
end
if entry and state ~= DELETING and (ARGV[2] == '' or topic_id == ARGV[2]) then
  -- A removal comes first: the server allows it when memory is short, and then also the writes after it.
  call('HDEL', prefix .. 'topics', ARGV[1])
  note_change()
  call('HSET', prefix .. 'topics', ARGV[1], pack('>B', DELETING) .. sub(entry, 2))
end
return version
