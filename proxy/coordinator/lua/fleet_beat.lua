-- Renew a proxy's lease by this server's clock.
--
-- KEYS     <prefix>meta and <prefix>never, as of shards (shard.lua); <prefix>leases is a hash: proxy ID -> LEASE, record. The fleet's
--          keys are in the registry's slot.
-- ARGV[1] proxy ID, ARGV[2] record, ARGV[3] lease in ms, ARGV[4] i64 version and mark (8 bytes) of the newest change of the registry
-- that the proxy obeys, ARGV[5] '1' if the proxy's lease runs, by its own clock
-- Answers i64 ms since when this server has had all leases, without a break. Then per record whose lease runs: u8 1 if the registry has
-- the change that the proxy obeys, u32 length, record. Other records are dropped.
--
-- <prefix>since  string, SINCE: that time, and the server (server.lua). A server that was emptied, started or promoted may have lost
--                leases that still run.

local LEASE, LEASE_BYTES = '>I8i8c8', 24 -- end in ms; version and mark
local SINCE, SINCE_BYTES = '>i8', 8

local prefix = sub(KEYS[1], 1, -#'meta' - 1)
local key, since_key = prefix .. 'leases', prefix .. 'since'
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local server = server_here() or ''
local is_lost = ARGV[5] == '1' and call('HEXISTS', key, ARGV[1]) == 0
-- A removal comes first: a server without free memory allows removals, and then also the writes after them.
call('HDEL', key, ARGV[1])

local since, since_server = now, server
local known = call('GET', since_key)
if known then
  since, since_server = parse(SINCE, known), sub(known, SINCE_BYTES + 1)
end
if is_lost or since_server ~= server or since > now then
  since = now
elseif not known and version == 0 and parse('>i8', ARGV[4]) <= 0 then
  since = 0 -- a fleet that begins: no proxy can have missed a change, as there was none
end
call('SET', since_key, pack(SINCE, since) .. server)
call('HSET', key, ARGV[1], pack('>I8', now + tonumber(ARGV[3])) .. ARGV[4] .. ARGV[2])

local parts = { pack('>i8', now - since) }
local leases = call('HGETALL', key)
for index = 1, #leases, 2 do
  local lease = leases[index + 1]
  local until_ms, obeyed_version, obeyed_mark = parse(LEASE, lease)
  if until_ms > now then
    local has = obeyed_mark == NO_MARK or has_change(obeyed_version, obeyed_mark)
    parts[#parts + 1] = pack('>BI4', has and 1 or 0, #lease - LEASE_BYTES) .. sub(lease, LEASE_BYTES + 1)
  else
    call('HDEL', key, leases[index])
  end
end
return table.concat(parts)
