-- An operator has accepted that changes are lost. ARGV[1] the highest version that anybody is known to have seen.
-- Answers the version, which is higher than that.

version = math.max(version, tonumber(ARGV[1]))
-- A removal comes first: the server allows it when memory is short, and then also the writes after it.
call('HDEL', prefix .. 'meta', 'accepted')
note_change()
call('HSET', prefix .. 'meta', 'accepted', version)
return version
