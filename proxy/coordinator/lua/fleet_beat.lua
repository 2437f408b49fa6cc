-- Renew a proxy's lease by this server's clock.
--
-- KEYS[1]  prefix of the fleet's keys; <prefix>leases is a hash: proxy ID -> u64 end of the lease in ms, record
-- ARGV[1] proxy ID, ARGV[2] record, ARGV[3] lease in ms
-- Answers per record whose lease runs: u32 length, record. The others are dropped.

local key = KEYS[1] .. 'leases'
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- A removal comes first: the server allows it when memory is short, and then also the writes after it.
redis.call('HDEL', key, ARGV[1])
redis.call('HSET', key, ARGV[1], struct.pack('>I8', now + tonumber(ARGV[3])) .. ARGV[2])

local parts = {}
local leases = redis.call('HGETALL', key)
for index = 1, #leases, 2 do
  local lease = leases[index + 1]
  if struct.unpack('>I8', lease) > now then
    parts[#parts + 1] = struct.pack('>I4', #lease - 8) .. string.sub(lease, 9)
  else
    redis.call('HDEL', key, leases[index])
  end
end
return table.concat(parts)
