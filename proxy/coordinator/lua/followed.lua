-- The partitions whose shadows are to be followed: a transaction is open, or was a while ago.
--
-- ARGV[2]  u64: that while, in ms
-- Answers topic ID and partition (20 bytes) for each.

return reply(call('ZRANGEBYSCORE', followed_key, math.max(clock(), written) - parse('>I8', ARGV[2]), '+inf'))
