-- Hold a lease, or renew it. One holder at a time; it ends by itself.
--
-- KEYS[1]  prefix of the fleet's keys; <prefix>lease:<name> is its holder, with an expiry
-- ARGV[1] name, ARGV[2] holder, ARGV[3] lease in ms
-- Answers 1 where the holder has it, 0 where another one does.

local key = KEYS[1] .. 'lease:' .. ARGV[1]
local holder = redis.call('GET', key)
if holder and holder ~= ARGV[2] then
  return 0
end
-- A removal comes first: the server allows it when memory is short, and then also the writes after it. Whoever holds this
-- lease may be the one who makes room.
redis.call('DEL', key)
redis.call('SET', key, ARGV[2], 'PX', tonumber(ARGV[3]))
return 1
