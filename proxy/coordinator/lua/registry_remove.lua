-- ARGV[1] name. Answers the version, which stays where the name is unknown.

if call('HDEL', prefix .. 'topics', ARGV[1]) == 1 then
  note_change()
end
return version
