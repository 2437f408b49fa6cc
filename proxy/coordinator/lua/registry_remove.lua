-- ARGV[1] name, ARGV[2] topic ID, zeros for a reservation, empty for any. Answers the version, which stays where the name is
-- unknown, or is of another topic ID by now.

local entry = call('HGET', prefix .. 'topics', ARGV[1])
local topic_id
if entry then
  topic_id = sub(entry, 2, 17)
end
if entry and (ARGV[2] == '' or topic_id == ARGV[2]) then
  note_change()
  call('HDEL', prefix .. 'topics', ARGV[1])
end
return version
