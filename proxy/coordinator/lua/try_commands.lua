-- Try every command that a script or a client of this store may call; all of it in one step, and nothing stays.
--
-- KEYS[1]  prefix of the keys to try; <prefix>check-<name>… are made and removed
-- ARGV[1]  a name that nobody else has
-- Answers what was rejected: command, reason, command, reason, and so on. Error where the server takes no writes at all.

local key = KEYS[1] .. 'check-' .. ARGV[1]
local hash, sorted, text = key .. ':hash', key .. ':sorted', key .. ':text'

local TRIED = {
  -- A removal comes first: the server allows it when memory is short, and then also the writes after it.
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
  { 'ZREM', sorted, 'member' },
  { 'ZREMRANGEBYLEX', sorted, '-', '+' },
  { 'SET', text, '1', 'PX', '60000' },
  { 'GET', text },
  { 'APPEND', text, '2' },
  { 'PEXPIRE', text, '60000' },
  { 'PUBLISH', key, '1' },
  { 'UNLINK', hash, sorted, text },
}

local rejected = {}
for _, command in ipairs(TRIED) do
  local answer = redis.pcall(unpack(command))
  local reason = type(answer) == 'table' and answer.err
  if reason and string.sub(reason, 1, 4) ~= 'ERR ' then
    return answer -- not about this command: a replica, or a server that can't write at the moment
  elseif reason then
    rejected[#rejected + 1], rejected[#rejected + 2] = command[1], reason
  end
end
-- Where one of the two may not be run, the other one removes what was made.
redis.pcall('DEL', hash, sorted, text)
return rejected
