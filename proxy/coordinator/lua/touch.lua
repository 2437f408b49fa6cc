-- Only the check that comes before every script: does the store have the caller's known state? Answers as state.lua does.
--
-- Stores the identity of the deployment, from the caller. So a proxy that comes here by a wrong URL fences nothing (fence.lua).

if known_identity ~= NO_SERVER then
  redis.pcall('HSETNX', meta_key, 'identity', known_identity) -- a replica, or a server without free memory, takes no writes
end
return reply({ pack('>i8i8I8I8', clock(), 0, 0, 0) })
