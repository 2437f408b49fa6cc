-- Members of an index, shared by the scripts of one shard; the loader puts it behind shard.lua.
--
-- A member is a ROW, or a pack: the rows of old batches, without gaps between them, in a quarter of the memory. Its score is
-- the last offset of its (last) row. Both have 65 bytes in front in which format, base offset, last offset and running
-- maximum timestamp (each of the whole member) have the same places: ROW_LAST_AT and ROW_RUNNING_MAXIMUM_AT hold for both.
--
-- Behind the 65 bytes of a pack its rows follow, each as long as the others: last offset, segment, position, length,
-- maximum timestamp and append time, all but the segment as differences in as few bytes as the largest of the pack needs.
-- A row's base offset is the one behind the last offset of the row before.
--
-- Whoever reads an index uses: is_pack, row_of_offset, row_of_timestamp, each_row. Whoever changes one: rows_in, without_first,
-- member_bytes.

-- Format and flags; base and last offset; what last offsets, maximum timestamps and append times are told from; rows; bytes
-- of each of the five differences; the running maximum of the last row.
local PACK, PACK_BYTES = '>Bi8i8i8i8i8I8BBBBBxxxi8', 65
local PACK_FORMAT, FORMATS = 2, 16 -- the flags of a member are in the four bits above its format
local PACK_ROWS_AT = 42
local MEMBER_OVERHEAD_BYTES = 66 -- of the server, for each member of a sorted set
local ROW_MEMBER_BYTES = 65 + MEMBER_OVERHEAD_BYTES

local function is_pack(member)
  return string.byte(member) % FORMATS == PACK_FORMAT
end

local function rows_in(member)
  return is_pack(member) and parse('>I8', member, PACK_ROWS_AT) or 1
end

-- What a member takes in the server's memory, but for what its allocator rounds up.
local function member_bytes(member)
  return #member + MEMBER_OVERHEAD_BYTES
end

local opened, opened_member -- the newest, as it is mostly looked at more than once

local function open_pack(member)
  if opened_member == member then
    return opened
  end
  local flags, base, last, origin, origin_timestamp, origin_time, count, a, b, c, d, e, maximum =
    parse(PACK, member)
  opened_member, opened = member, {
    flags = flags, base = base, last = last, origin = origin, origin_timestamp = origin_timestamp,
    origin_time = origin_time, count = count, maximum = maximum,
    offset_bytes = a, position_bytes = b, length_bytes = c, timestamp_bytes = d, time_bytes = e,
    row_bytes = 16 + a + b + c + d + e,
    row = '>I' .. a .. 'c16I' .. b .. 'I' .. c .. 'I' .. d .. 'I' .. e,
  }
  return opened
end

-- Which row of a member holds the offset, or is the first behind it; the offset is not behind the member.
local function row_of_offset(member, offset)
  if not is_pack(member) then
    return 1
  end
  local open = open_pack(member)
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

-- Which row of a member is the first whose own maximum timestamp is `timestamp` or later; nil where none is.
local function row_of_timestamp(member, timestamp)
  if not is_pack(member) then
    local _, _, _, _, _, _, maximum = parse(ROW, member)
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

-- For a loop over the rows of a member, from the given one on: its number, base, last, segment, position, length, maximum
-- timestamp, append time.
local function each_row(member, first)
  local number = (first or 1) - 1
  if not is_pack(member) then
    return function()
      number = number + 1
      if number == 1 then
        local _, base, last, segment, position, length, maximum, append_time = parse(ROW, member)
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

-- A pack without its first rows, of which it keeps at least one.
local function without_first(member, dropped)
  local open = open_pack(member)
  local _, base = each_row(member, dropped + 1)()
  return pack(PACK, open.flags, base, open.last, open.origin, open.origin_timestamp, open.origin_time, open.count - dropped,
    open.offset_bytes, open.position_bytes, open.length_bytes, open.timestamp_bytes, open.time_bytes, open.maximum)
    .. sub(member, PACK_BYTES + 1 + dropped * open.row_bytes)
end
