-- Take a lease, or renew it. It has one holder at a time, and expires by itself.
--
-- KEYS     <prefix>meta and <prefix>never, as of shards (shard.lua); <prefix>lease:<name> is its holder, with an expiry
-- ARGV[1] name, ARGV[2] holder, ARGV[3] lease in ms
-- Answers 1 if the holder has the lease, 0 if another holder has it.

local key = sub(KEYS[1], 1, -#'meta' - 1) .. 'lease:' .. ARGV[1]
local holder = redis.call('GET', key)
if holder and holder ~= ARGV[2] then
  return 0
end
-- A removal comes first: a server without free memory allows removals, and then also the writes after them. The holder
-- of this lease may be the proxy that frees memory.
redis.call('DEL', key)
redis.call('SET', key, ARGV[2], 'PX', tonumber(ARGV[3]))
return 1
