-- Replace a wish for replicas, if it is still there and still the same.
--
-- KEYS     <prefix>meta and <prefix>never, as of shards (shard.lua); <prefix><cluster>:pending is a hash: ID of the wish -> JSON
-- ARGV[1]  ID of the Kafka cluster; ARGV[2] ID of the wish; ARGV[3] the wish as it was; ARGV[4] the new one
-- Answers 1 if it was replaced, else 0.

local key = string.sub(KEYS[1], 1, -#'meta' - 1) .. ARGV[1] .. ':pending'
if redis.call('HGET', key, ARGV[2]) ~= ARGV[3] then
  return 0
end
redis.call('HSET', key, ARGV[2], ARGV[4])
return 1
