-- The index of a log, shared by the scripts of one shard; the loader puts it after shard.lua.
--
-- All indexes of a shard are one sorted set, <prefix>rows, whose scores are 0: a commit adds the rows of all its logs by one
-- call. A member begins with topic ID and partition and its last offset, so a log's members are neighbours in order of offset.
--
-- A member is a ROW, or a pack: the rows of old batches, without gaps between them, in a quarter of the memory. In both, format,
-- base offset, last offset and running maximum timestamp (each of the whole member) have the same places: LAST_AT, FORMAT_AT,
-- BASE_AT and RUNNING_MAXIMUM_AT hold for both.
--
-- After the first 93 bytes of a pack come its rows, each as long as the others: last offset, segment, position, length,
-- maximum timestamp and append time, all except the segment as differences in as few bytes as the largest of the pack needs.
-- The base offset of a row follows the last offset of the row before.
--
-- Scripts that read an index use: is_pack, row_of_offset, row_of_timestamp, each_row, members_from, count_before. Scripts that
-- change one use: rows_in, without_first, member_bytes, add_members, remove_members.

-- Topic ID and partition; last offset; the offset that last offsets are counted from; format and flags; base offset; the times
-- that maximum timestamps and append times are counted from; rows; bytes of each of the five differences; the running maximum
-- of the last row.
local PACK, PACK_BYTES = '>c20i8i8Bi8i8i8I8BBBBBxxxxxxxxxxxi8', 93
local LAST_AT, FORMAT_AT, BASE_AT, LENGTH_AT, RUNNING_MAXIMUM_AT = 21, 37, 38, 66, 86
local PACK_FORMAT, FORMATS = 2, 16 -- the flags of a member are in the four bits above its format
local PACK_ROWS_AT = 62
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
