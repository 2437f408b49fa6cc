-- Functions of scripts that read or change an index (members.lua); the loader puts them after that. Commits do without them:
-- each call creates all functions again, which takes time.
--
-- A member of an index is a ROW, or a pack: the rows of old batches, without gaps between them, in a quarter of the memory. In both, last
-- offset, base offset, format and running maximum timestamp (each of the whole member) have the same places: LAST_AT, BASE_AT,
-- FORMAT_AT and RUNNING_MAXIMUM_AT hold for both.
--
-- After the first 93 bytes of a pack come its rows, each as long as the others: last offset, segment, position, length,
-- maximum timestamp and append time, all except the segment as differences in as few bytes as the largest of the pack needs.
-- The base offset of a row follows the last offset of the row before.
--
-- Scripts that read an index use: is_pack, row_of_offset, row_of_timestamp, each_row, members_from, count_before. Scripts that
-- change one use: rows_in, without_first, member_bytes, add_members, remove_members.

-- Topic ID and partition; last offset; base offset; the offset that last offsets are counted from; format and flags; the times
-- that maximum timestamps and append times are counted from; rows; bytes of each of the five differences; the running maximum
-- of the last row.
local PACK, PACK_BYTES = '>c20i8i8i8Bi8i8I8BBBBBxxxxxxxxxxxi8', 93
local LAST_AT, BASE_AT, FORMAT_AT, LENGTH_AT, MAXIMUM_AT, RUNNING_MAXIMUM_AT = 21, 29, 45, 74, 78, 86
local PACK_FORMAT, FORMATS = 2, 16 -- the flags of a member are in the four bits above its format
local PACK_ROWS_AT = 62

local function parse_row(member)
  return parse(ROW, member, PARTITION_BYTES + 1)
end

-- The smallest member of a log that ends at an offset or after it, as the server takes a bound.
local function bound(partition, offset, sign)
  return (sign or '[') .. partition .. pack('>i8', offset)
end

-- After the last member of a log.
local function end_of(partition)
  return '(' .. partition .. string.rep('\255', 8)
end

-- Some members of a log in order: those that end at `from` or after it, and before `until_offset` (nil: all).
local function members_from(partition, from, until_offset, limit)
  local last = until_offset and bound(partition, until_offset, '(') or end_of(partition)
  return call('ZRANGEBYLEX', rows_key, bound(partition, from), last, 'LIMIT', '0', limit)
end

-- The last member of a log that ends before an offset; nil if there is none.
local function member_before(partition, offset)
  return call('ZREVRANGEBYLEX', rows_key, bound(partition, offset, '('), '[' .. partition, 'LIMIT', '0', '1')[1]
end

-- The number of members of a log that end before an offset.
local function count_before(partition, offset)
  return offset > 0 and call('ZLEXCOUNT', rows_key, '[' .. partition, bound(partition, offset, '(')) or 0
end

-- Some of what a sorted set has of a log, in order.
local function some_of(key, partition, limit)
  return call('ZRANGEBYLEX', key, '[' .. partition, end_of(partition), 'LIMIT', '0', limit)
end

-- True if a deletion of a log has left members, producers or transactions of it.
local function is_left(partition)
  return some_of(rows_key, partition, '1')[1] ~= nil
    or some_of(prefix .. 'producer_ids', partition, '1')[1] ~= nil
    or some_of(aborted_key, partition, '1')[1] ~= nil
end

-- The first offset of the oldest open transaction of a log, `none` if there is none.
local function first_unstable(partition, none)
  local oldest = some_of(open_key, partition, '1')[1]
  return oldest and parse('>i8', oldest, PARTITION_BYTES + 1) or none
end

-- Remove the members of a log that end between two offsets, both included.
local function remove_members(partition, first_last, last_last)
  call('ZREMRANGEBYLEX', rows_key, bound(partition, first_last), bound(partition, last_last + 1, '('))
end

local function is_pack(member)
  return string.byte(member, FORMAT_AT) % FORMATS == PACK_FORMAT
end

local function rows_in(member)
  return is_pack(member) and parse('>I8', member, PACK_ROWS_AT) or 1
end

-- Memory of the server that a member takes, without the rounding of the allocator.
local function member_bytes(member)
  return #member + MEMBER_OVERHEAD_BYTES
end

local opened, opened_member -- the last one, because it is often read several times

local function open_pack(member)
  if opened_member == member then
    return opened
  end
  local partition, last, base, origin, flags, origin_timestamp, origin_time, count, a, b, c, d, e, maximum =
    parse(PACK, member)
  opened_member, opened = member, {
    partition = partition, flags = flags, base = base, last = last, origin = origin, origin_timestamp = origin_timestamp,
    origin_time = origin_time, count = count, maximum = maximum,
    offset_bytes = a, position_bytes = b, length_bytes = c, timestamp_bytes = d, time_bytes = e,
    row_bytes = 16 + a + b + c + d + e,
    row = '>I' .. a .. 'c16I' .. b .. 'I' .. c .. 'I' .. d .. 'I' .. e,
  }
  return opened
end

-- The row of a member that has the offset, or the first row after it; the offset is not after the member.
local function row_of_offset(member, offset)
  if not is_pack(member) then
    return 1
  end
  local open = open_pack(member)
  if offset <= open.base then
    return 1
  end
  local low, high, layout = 1, open.count, '>I' .. open.offset_bytes
  while low < high do
    local middle = math.floor((low + high) / 2)
    if open.origin + parse(layout, member, PACK_BYTES + 1 + (middle - 1) * open.row_bytes) >= offset then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

-- The first row of a member whose own maximum timestamp is `timestamp` or later; nil if there is none.
local function row_of_timestamp(member, timestamp)
  if not is_pack(member) then
    local maximum = parse('>i8', member, MAXIMUM_AT)
    return maximum >= timestamp and 1 or nil
  end
  local open = open_pack(member)
  local at = PACK_BYTES + 1 + open.offset_bytes + 16 + open.position_bytes + open.length_bytes
  local wanted, layout = timestamp - open.origin_timestamp, '>I' .. open.timestamp_bytes
  for number = 1, open.count do
    if parse(layout, member, at) >= wanted then
      return number
    end
    at = at + open.row_bytes
  end
  return nil
end

-- For a loop over the rows of a member, from the given row on: its number, base, last, segment, position, length, maximum
-- timestamp, append time.
local function each_row(member, first)
  local number = (first or 1) - 1
  if not is_pack(member) then
    return function()
      number = number + 1
      if number == 1 then
        local last, base, _, _, segment, append_time, position, length, maximum = parse_row(member)
        return 1, base, last, segment, position, length, maximum, append_time
      end
    end
  end
  local open = open_pack(member)
  local at, base = PACK_BYTES + 1 + number * open.row_bytes, open.base
  if number > 0 then
    base = open.origin + parse('>I' .. open.offset_bytes, member, at - open.row_bytes) + 1
  end
  return function()
    number = number + 1
    if number <= open.count then
      local last, segment, position, length, maximum, append_time, next_at = parse(open.row, member, at)
      local row_base = base
      last, at = open.origin + last, next_at
      base = last + 1
      return number, row_base, last, segment, position, length, open.origin_timestamp + maximum, open.origin_time + append_time
    end
  end
end

-- A pack without its first rows; it keeps at least one row.
local function without_first(member, dropped)
  local open = open_pack(member)
  local _, base = each_row(member, dropped + 1)()
  return pack(PACK, open.partition, open.last, base, open.origin, open.flags, open.origin_timestamp, open.origin_time,
    open.count - dropped, open.offset_bytes, open.position_bytes, open.length_bytes, open.timestamp_bytes, open.time_bytes, open.maximum)
    .. sub(member, PACK_BYTES + 1 + dropped * open.row_bytes)
end

-- Rows are gone, after `note_change`: what that leaves of the segments' use, by segment.
local function note_freed(bytes_freed, rows_freed)
  local segments, key = {}, prefix .. 'segments'
  for segment in pairs(bytes_freed) do
    segments[#segments + 1] = segment
  end
  if #segments == 0 then
    return
  end
  local less_used, unused, garbage = {}, {}, {}
  for index, use in ipairs(call('HMGET', key, unpack(segments))) do
    local segment = segments[index]
    local bytes, rows = 0, 0
    if use then
      bytes, rows = parse(USE, use)
      bytes, rows = bytes - bytes_freed[segment], rows - rows_freed[segment]
    end
    if rows > 0 then
      less_used[#less_used + 1], less_used[#less_used + 2] = segment, pack(USE, bytes, rows)
    else
      unused[#unused + 1] = segment
      garbage[#garbage + 1], garbage[#garbage + 2] = written, segment
    end
  end
  -- A few hundred at most, as rows are freed.
  if #unused > 0 then
    call('HDEL', key, unpack(unused))
    call('ZADD', prefix .. 'garbage', unpack(garbage))
  end
  if #less_used > 0 then
    call('HSET', key, unpack(less_used))
  end
end
