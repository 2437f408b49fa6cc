-- Nothing except what comes before every script: see that the store has what the caller knows. Answers as state.lua does.
--
-- Notes which deployment's store this is, as the caller knows it: a proxy that a wrong URL leads here fences nothing (fence.lua).

if known_identity ~= NO_SERVER then
  redis.pcall('HSETNX', meta_key, 'identity', known_identity) -- a replica, or one short of memory, takes no writes
end
return reply({ pack('>i8i8I8I8', clock(), 0, 0, 0) })
