-- Shared by the scripts of the registry of diskless topics; the loader puts it in front of each.
--
-- KEYS[1]  prefix of the registry's keys
--
-- <prefix>meta     hash: version, accepted (the version from which on a loss was accepted by an operator)
-- <prefix>topics   hash: name -> ENTRY, owner, configs as JSON
-- <prefix>changes  pub/sub channel: versions as they come

local call, pack, parse, sub = redis.call, struct.pack, struct.unpack, string.sub

local ENTRY, ENTRY_BYTES = '>Bc16I4I4', 25 -- state, topic ID, partitions, length of the owner's name
local RESERVED, LIVE, DELETING = 1, 2, 3

local prefix = KEYS[1]
local version = tonumber(call('HGET', prefix .. 'meta', 'version') or 0)

local function note_change()
  version = version + 1
  call('HSET', prefix .. 'meta', 'version', version)
  call('PUBLISH', prefix .. 'changes', version)
end
