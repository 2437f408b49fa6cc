-- The server that runs a script; the loader puts this file in front of the scripts of shards and of the registry.

-- Half of the server's replication ID, which changes with each start and promotion; nil if the server does not say it.
local function server_here()
  local replication = redis.pcall('INFO', 'replication')
  return type(replication) == 'string'
    and string.match(replication, 'master_replid:(%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x)') or nil
end
