-- Take a name. ARGV[1] name, ARGV[2] entry. Answers the version; error TAKEN where somebody has it.

if call('HEXISTS', prefix .. 'topics', ARGV[1]) == 1 then
  return redis.error_reply('TAKEN')
end
note_change()
call('HSET', prefix .. 'topics', ARGV[1], ARGV[2])
return announce()
