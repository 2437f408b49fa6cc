-- Try every command that a script or a client of this store may call; all in one step, and no key stays.
--
-- KEYS     <prefix>meta and <prefix>never, as of shards (shard.lua); <prefix>check-<name>… are created and removed
-- ARGV[1]  a unique name
-- Answers the rejected commands: command, reason, command, reason, and so on. An error if the server takes no writes at all.

local key = string.sub(KEYS[1], 1, -#'meta' - 1) .. 'check-' .. ARGV[1]
local hash, sorted, text = key .. ':hash', key .. ':sorted', key .. ':text'

local TRIED = {
  -- A removal comes first: a server without free memory allows removals, and then also the writes after them.
  { 'DEL', hash, sorted, text },
  { 'TIME' },
  { 'HSETNX', hash, 'field', '1' },
  { 'HSET', hash, 'another', '2' },
  { 'HGET', hash, 'field' },
  { 'HMGET', hash, 'field', 'another' },
  { 'HGETALL', hash },
  { 'HVALS', hash },
  { 'HEXISTS', hash, 'field' },
  { 'HLEN', hash },
  { 'HSCAN', hash, '0', 'COUNT', '10' },
  { 'HDEL', hash, 'field' },
  { 'ZADD', sorted, 'NX', '1', 'member' },
  { 'ZLEXCOUNT', sorted, '-', '+' },
  { 'ZRANGE', sorted, '0', '-1' },
  { 'ZRANGEBYLEX', sorted, '-', '+', 'LIMIT', '0', '1' },
  { 'ZREVRANGEBYLEX', sorted, '+', '-', 'LIMIT', '0', '1' },
  { 'ZRANGEBYSCORE', sorted, '0', '1', 'LIMIT', '0', '1' },
  { 'ZSCORE', sorted, 'member' },
  { 'ZSCAN', sorted, '0', 'COUNT', '10' },
  { 'ZREM', sorted, 'member' },
  { 'ZREMRANGEBYLEX', sorted, '-', '+' },
  { 'SET', text, '1', 'PX', '60000' },
  { 'GET', text },
  { 'APPEND', text, '2' },
  { 'PEXPIRE', text, '60000' },
  { 'SPUBLISH', key, '1' },
  { 'UNLINK', hash, sorted, text },
}

local rejected = {}
for _, command in ipairs(TRIED) do
  local answer = redis.pcall(unpack(command))
  local reason = type(answer) == 'table' and answer.err
  if reason and string.sub(reason, 1, 4) ~= 'ERR ' then
    return answer -- not caused by this command: a replica, or a server that can't write at the moment
  elseif reason then
    rejected[#rejected + 1], rejected[#rejected + 2] = command[1], reason
  end
end
-- If one of the two is rejected, the other one removes the keys.
redis.pcall('DEL', hash, sorted, text)
return rejected
