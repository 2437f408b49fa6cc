-- The index of a log, shared by the scripts of one shard; the loader puts it after shard.lua.
--
-- All indexes of a shard are one sorted set, <prefix>rows, whose scores are 0: a commit adds the rows of all its logs by one
-- call. A member begins with topic ID and partition and its last offset, so a log's members are neighbours in order of offset.
--
-- A member is a ROW, or a pack of many rows (rows.lua).

local MEMBER_OVERHEAD_BYTES = 66 -- of the server, for each member of a sorted set
local ROW_MEMBER_BYTES = PARTITION_BYTES + ROW_BYTES + MEMBER_OVERHEAD_BYTES
local NO_SCORE = '0'
local MOST_MEMBERS_PER_CALL = 1000

-- Add members to a sorted set. `scored`: NO_SCORE and member, in turns.
local function add_members(key, scored)
  for at = 1, #scored, 2 * MOST_MEMBERS_PER_CALL do
    call('ZADD', key, unpack(scored, at, math.min(at + 2 * MOST_MEMBERS_PER_CALL - 1, #scored)))
  end
end
