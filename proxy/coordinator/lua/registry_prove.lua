-- Note that this server has all records of the registry's partition of the journal, as prove.lua does for a shard.
--
-- ARGV[1]  i64: position; half of the replication ID of the server
-- Answers the version. Errors: as in prove.lua.

local proved_to, server = parse('>i8c16', ARGV[1])
if proved_to > applied then
  return redis.error_reply(string.format('BEHIND %d', applied))
end
local here = server_here()
if server ~= here then
  return redis.error_reply(string.format('UNPROVED %d %s', applied, here or ''))
end
call('HDEL', prefix .. 'meta', 'proved') -- a removal comes first: a server without free memory then allows the write, too
call('HSET', prefix .. 'meta', 'proved', server)
return version
