-- Whether the user may do what the scripts do; all of it in one step, and nothing stays.
--
-- KEYS[1]  prefix of the keys to try; <prefix>check-<name> is made and removed
-- ARGV[1] a name that nobody else has
-- Answers 1.

local key = KEYS[1] .. 'check-' .. ARGV[1]
redis.call('TIME')
redis.call('HSET', key, 'field', '1')
redis.call('HMGET', key, 'field')
redis.call('HDEL', key, 'field')
redis.call('ZADD', key, 1, 'member')
redis.call('ZRANGEBYSCORE', key, 0, 1)
redis.call('DEL', key)
redis.call('SET', key, '1')
redis.call('PUBLISH', key, '1')
redis.call('DEL', key)
return 1
