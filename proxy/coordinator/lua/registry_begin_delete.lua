-- ARGV[1] name. Answers the version, which stays where the name is unknown or already being deleted.

local entry = call('HGET', prefix .. 'topics', ARGV[1])
if entry and parse(ENTRY, entry) ~= DELETING then
  note_change()
  call('HSET', prefix .. 'topics', ARGV[1], pack('>B', DELETING) .. sub(entry, 2))
end
return version
