-- Shared by the scripts of the registry of diskless topics; the loader puts it after marks.lua. After it comes fence_registry.lua, or
-- journal_registry.lua if the registry is a view of a journal. Then comes the script, as the function `operate`, whose answer goes
-- through `finish`.
--
-- KEYS         <prefix>meta and <prefix>never, as of shards (shard.lua)
-- ARGV[#ARGV]  i64 version and mark (8 bytes) of the newest change that the caller knows, -1 for none; mark (8 bytes) of the change
--              that this call makes; then the part of the file after this one
--
-- <prefix>topics   hash: name -> ENTRY, owner, configs as JSON
-- <prefix>changes  sharded pub/sub channel: i64 version and mark as they come

local ENTRY, ENTRY_BYTES = '>Bc16I4I4', 25 -- state, topic ID, partitions, length of the owner's name
local RESERVED, LIVE, DELETING = 1, 2, 3

local prefix = sub(KEYS[1], 1, -#'meta' - 1)
local known_version, known_mark, new_mark = parse('>i8c8c8', ARGV[#ARGV])
local mark = registry_meta[5] or NO_MARK

-- Whether the server may refuse it: a change that may make room begins with a removal, which is allowed when memory is short, and then
-- also the writes after it.
local function note_change(may_make_room)
  if may_make_room then
    call('HDEL', prefix .. 'meta', 'settling')
  end
  version, mark = version + 1, new_mark
  call('HSET', prefix .. 'meta', 'version', version, 'mark', mark)
  call('HSET', prefix .. 'marks', version, mark)
  call('HDEL', prefix .. 'marks', version - MOST_MARKS)
end

-- To be called after everything is written: what is not announced is there all the same.
local function announce()
  call('SPUBLISH', prefix .. 'changes', pack('>i8', version) .. mark)
  return version
end
