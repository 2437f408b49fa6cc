-- An operator has accepted that changes are lost. ARGV[1] the highest version that anybody is known to have seen.
-- Answers the version, which is higher than that.

version = math.max(version, tonumber(ARGV[1]))
call('UNLINK', prefix .. 'marks')
note_change(true)
call('HSET', prefix .. 'meta', 'accepted', version)
call('HDEL', prefix .. 'meta', 'fenced')
return announce()
