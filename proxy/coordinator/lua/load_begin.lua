-- Empty this shard, and let the holder of a token load a snapshot.
--
-- ARGV[2]  i64: position of the next record as the caller has seen it; token (16 hex digits; zeros to load nothing); token of a load
--          that does not go on, zeros for none; 8 random bytes, which become part of the names of keys that expire
-- Errors: BEHIND position: the shard has applied records meanwhile; RESTORING: somebody else loads a snapshot

local seen, token, stopped, new_pass = parse('>i8c16c16c8', ARGV[2])
local loading = meta[6] and sub(meta[6], 1, 1) == 'L' and meta[6]
if loading and sub(loading, 2, 17) ~= stopped then
  return redis.error_reply('RESTORING ' .. sub(loading, 2))
elseif not loading and sequence ~= seen then
  return redis.error_reply(string.format('BEHIND %d', sequence))
end
call('UNLINK', meta_key, DIRTY_KEY, prefix .. 'answered')
for key in pairs(KINDS) do
  call('UNLINK', key)
end
call('HSET', meta_key, 'pass', new_pass)
if token ~= string.rep('0', 16) then
  call('HSET', meta_key, 'snapshot', 'L' .. token .. ' 0')
end
return reply({})
