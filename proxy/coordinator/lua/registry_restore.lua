-- Put the registry of a snapshot in place of this one, in one step.
--
-- ARGV[1]  i64: position of the next record as the caller has seen it; then what registry_copy.lua has answered
-- Answers the version as before. Errors: BEHIND position: records were applied meanwhile

local seen, at = parse('>i8', ARGV[1])
if seen ~= applied then
  return redis.error_reply(string.format('BEHIND %d', applied))
end
local HASHES, lists = { m = prefix .. 'meta', t = prefix .. 'topics', k = prefix .. 'marks' }, { m = {}, t = {}, k = {} }
while at <= #ARGV[1] do
  local kind, length, from = parse('>c1I4', ARGV[1], at)
  local list = lists[kind]
  list[#list + 1], at = sub(ARGV[1], from, from + length - 1), from + length
  length, from = parse('>I4', ARGV[1], at)
  list[#list + 1], at = sub(ARGV[1], from, from + length - 1), from + length
end
call('UNLINK', HASHES.m, HASHES.t, HASHES.k)
for kind, list in pairs(lists) do
  for first = 1, #list, 1000 do
    call('HSET', HASHES[kind], unpack(list, first, math.min(first + 999, #list)))
  end
end
return version
