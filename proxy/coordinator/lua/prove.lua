-- Note that this server has all records of the journal up to a position that was its end after the server had been started or
-- promoted. Only a view of a journal runs it.
--
-- ARGV[2]  i64: that position; half of the replication ID of the server, as UNPROVED had it
-- Answers nothing. Errors: BEHIND position, UNPROVED position, replication ID (another server by now).

local proved_to, server = parse('>i8c16', ARGV[2])
if proved_to > sequence then
  return redis.error_reply(string.format('BEHIND %d', sequence))
end
local here = server_here()
if server ~= here then
  return redis.error_reply(string.format('UNPROVED %d %s', sequence, here or ''))
end
call('HDEL', meta_key, 'proved') -- a removal comes first: a server without free memory then allows the write, too
call('HSET', meta_key, 'proved', server)
return reply({})
