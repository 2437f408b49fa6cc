-- Renew a proxy's lease by this server's clock.
--
-- KEYS     <prefix>meta and <prefix>never, as of shards (shard.lua); <prefix>leases is a hash: proxy ID -> LEASE, record. The fleet's
--          keys are in the registry's slot.
-- ARGV[1] proxy ID, ARGV[2] record, ARGV[3] lease in ms, ARGV[4] i64 version and mark (8 bytes) of the newest change of the registry
-- that the proxy obeys
-- Answers per record whose lease runs: u8 1 if the registry has the change that the proxy obeys, u32 length, record. Other records
-- are dropped.

local LEASE, LEASE_BYTES = '>I8i8c8', 24 -- end in ms; version and mark

local key = sub(KEYS[1], 1, -#'meta' - 1) .. 'leases'
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- A removal comes first: a server without free memory allows removals, and then also the writes after them.
call('HDEL', key, ARGV[1])
call('HSET', key, ARGV[1], pack('>I8', now + tonumber(ARGV[3])) .. ARGV[4] .. ARGV[2])

local parts = {}
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
