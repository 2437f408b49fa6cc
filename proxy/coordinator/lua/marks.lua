-- A check that the registry of diskless topics has a change; the loader puts it in front of the registry's and the fleet's scripts.
--
-- SCRIPT  name of the script; the loader sets it
--
-- Each change has a version, and a random mark: after a failover that lost a change, another change gets the same version.
--
-- <registry>meta   hash: version; mark (8 bytes, of the newest change); accepted (the version from which on a loss was accepted by
--                  an operator); life (of the server that made the newest change); settling (a life, i64 since when); fenced (why)
-- <registry>marks  hash: version -> mark, of the newest MOST_MARKS changes

local call, pack, parse, sub = redis.call, struct.pack, struct.unpack, string.sub

local REGISTRY = 'diskless:{registry}:'
local NO_MARK = string.rep('\0', 8)
local MOST_MARKS = 10000

local registry_meta = call('HMGET', REGISTRY .. 'meta', 'version', 'accepted', 'fenced', 'life', 'mark')
local version, accepted = tonumber(registry_meta[1] or 0), tonumber(registry_meta[2] or 0)

-- Changes before an accepted loss are not checked. For a change without a mark, only the version is checked.
local function has_change(known_version, known_mark)
  if known_version <= 0 or known_version < accepted then
    return true
  elseif known_version > version then
    return false
  elseif known_mark == NO_MARK then
    return true
  end
  local stored = call('HGET', REGISTRY .. 'marks', known_version)
  if stored then
    return stored == known_mark
  end
  return known_version <= version - MOST_MARKS
end
