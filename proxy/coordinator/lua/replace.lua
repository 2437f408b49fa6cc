-- Replace old rows by new ones, if the old rows are as the caller has seen them: for merges and compactions.
--
-- ARGV[2]  swaps: topic ID and partition (20 bytes), u32 count, u8 flags (1 if there is a new row, 2 if aborted transactions go), then
--          `count` times a GIVEN row (neighbours in the index), the new row if there is one, and u32 number and last
--          offsets (i64 each) of those transactions
-- Answers u8 for each: REPLACED, CHANGED (the rows have changed), GONE (no such log), REFUSED (the new segment is
-- tombstoned).
--
-- Swaps are done one after another, each completely or not at all. A repeated swap finds its new row and is REPLACED. There is
-- no announcement: readers use their cached rows until an object does not exist any more.
--
-- Running maxima after a swap stay as they are. They also count deleted rows, so they are never too low.

local REPLACED, CHANGED, GONE, REFUSED = 0, 1, 2, 3
local SWAP = '>c20I4B'
local HAS_ENDED = 2 -- a flag
local GIVEN, GIVEN_BYTES = '>Bi8i8c16I4I4i8i8', 57 -- format, base, last, segment, position, length, maximum timestamp, append time
local FIRST_PAGE, PAGE_GROWTH, LARGEST_PAGE = 2, 4, 64 -- in members of an index; a pack has many rows

local request = ARGV[2]

local freed_bytes, freed_rows, used_bytes, used_rows = {}, {}, {}, {}
local more_rows, more_bytes, cursors, changed = 0, 0, {}, false

-- For a loop over the rows of a member as a caller packs them, from the given row on: its number, and the row.
local function each_packed(member, first)
  local format, rows = string.byte(member, FORMAT_AT), each_row(member, first)
  if is_pack(member) then
    format = format - PACK_FORMAT + FORMAT
  end
  return function()
    local number, base, last, segment, position, length, maximum, append_time = rows()
    if number then
      return number, pack(GIVEN, format, base, last, segment, position, length, maximum, append_time)
    end
  end
end

-- True if the first row that ends at an offset or after it is the given row.
local function is_there(partition, given, last)
  local member = members_from(partition, last, nil, 1)[1]
  if not member then
    return false
  end
  local _, row = each_packed(member, row_of_offset(member, last))(nil, 0)
  return row == given
end

-- True if no row has an offset of a range any more, as after a swap without a new row: a row that ends at the log start or
-- after it was not trimmed.
local function is_empty(partition, base, last, log_start)
  local member = members_from(partition, base, nil, 1)[1]
  local first_base
  if member then
    local _, row_base = each_row(member, row_of_offset(member, base))()
    first_base = row_base
  end
  return last >= log_start and (not first_base or first_base > last)
end

-- The members with the old rows, the number of rows in the first member before them, and in the last member up to their end.
-- Nil if the old rows are not neighbours in the index.
local function find_members(partition, at, count, first_last)
  local members, before, matched, from, page_size = {}, nil, 0, first_last, FIRST_PAGE
  while true do
    local page = members_from(partition, from, nil, page_size)
    for _, member in ipairs(page) do
      local first = before and 1 or row_of_offset(member, first_last)
      before = before or first - 1
      members[#members + 1] = member
      for number, row in each_packed(member, first) do
        local given_at = at + matched * GIVEN_BYTES
        if row ~= sub(request, given_at, given_at + GIVEN_BYTES - 1) then
          return nil
        end
        matched = matched + 1
        if matched == count then
          return members, before, number
        end
      end
    end
    if #page < page_size then
      return nil
    end
    from, page_size = parse('>i8', page[#page], LAST_AT) + 1, math.min(page_size * PAGE_GROWTH, LARGEST_PAGE)
  end
end

-- A pack with only its first rows (at least one), and their running maximum.
local function only_first(member, kept, maximum)
  local open = open_pack(member)
  local kept_until = PACK_BYTES + kept * open.row_bytes
  local last = open.origin + parse('>I' .. open.offset_bytes, member, kept_until - open.row_bytes + 1)
  return pack(PACK, open.partition, last, open.base, open.origin, open.flags, open.origin_timestamp, open.origin_time, kept,
    open.offset_bytes, open.position_bytes, open.length_bytes, open.timestamp_bytes, open.time_bytes, maximum)
    .. sub(member, PACK_BYTES + 1, kept_until)
end

-- The running maximum up to the first `count` rows of a member; nil if nothing is before it.
local function maximum_before(partition, member, rows)
  local previous = member_before(partition, parse('>i8', member, BASE_AT))
  local highest = previous and parse('>i8', previous, RUNNING_MAXIMUM_AT)
  for number, _, _, _, _, _, maximum in each_row(member) do
    if number > rows then
      break
    end
    highest = math.max(highest or maximum, maximum)
  end
  return highest
end

-- A row as a caller packs it, as a member.
local function as_member(partition, given, log_start, maximum)
  local format, base, last, segment, position, length, own_maximum, append_time = parse(GIVEN, given)
  return partition .. pack(ROW, last, base, log_start, format, segment, append_time, position, length, own_maximum, maximum)
end

-- The new members in place of the old ones: score and member, in turns.
local function built(partition, members, before, until_row, new, new_maximum, log_start)
  local result, first, last = {}, members[1], members[#members]
  local function add(member)
    result[#result + 1], result[#result + 2] = NO_SCORE, member
    more_bytes = more_bytes + member_bytes(member)
  end
  local highest = maximum_before(partition, first, before)
  if before > 0 then
    add(only_first(first, before, highest))
  end
  if new then
    add(as_member(partition, new, log_start, math.max(highest or new_maximum, new_maximum)))
  end
  if until_row < rows_in(last) then
    add(without_first(last, until_row))
  end
  return result
end

-- Count the old rows as free; return their bytes.
local function free(at, count)
  local bytes = 0
  for number = 0, count - 1 do
    local _, _, _, segment, _, length = parse(GIVEN, request, at + number * GIVEN_BYTES)
    if length > 0 then -- a marker uses no segment
      freed_bytes[segment] = (freed_bytes[segment] or 0) + length
      freed_rows[segment] = (freed_rows[segment] or 0) + 1
    end
    bytes = bytes + length
  end
  return bytes
end

local function swap(partition, at, count, new, ended)
  local packed_log = call('HGET', logs_key, partition)
  if not packed_log then
    return GONE
  end
  local start, high_watermark, bytes, rows, maximum, created, stable, last_append = parse(LOG, packed_log)
  local _, base, first_last = parse(GIVEN, request, at)
  local _, _, last = parse(GIVEN, request, at + (count - 1) * GIVEN_BYTES)
  local members, before, until_row = find_members(partition, at, count, first_last)
  local new_last, new_segment, new_length, new_maximum
  if new then
    _, _, new_last, new_segment, _, new_length, new_maximum = parse(GIVEN, new)
  end
  if new_last and new_last < start then
    new = nil -- no readable record of it is left
  end
  if not members then
    local done
    if new then
      done = is_there(partition, new, new_last)
    else
      done = is_empty(partition, base, last, start)
    end
    return done and REPLACED or CHANGED
  elseif last >= high_watermark then
    return CHANGED
  elseif new and call('ZSCORE', prefix .. 'tombstones', new_segment) then
    return REFUSED
  end

  -- From here on no error may happen. Removals come first: a server without free memory allows removals, and then also
  -- the writes after them.
  begin_change()
  changed = true
  local first_end, last_end = parse('>i8', members[1], LAST_AT), parse('>i8', members[#members], LAST_AT)
  local added = built(partition, members, before, until_row, new, new_maximum, start)
  for _, member in ipairs(members) do
    more_bytes = more_bytes - member_bytes(member)
  end
  remove_members(partition, first_end, last_end)
  for _, offset in ipairs(ended) do
    call('ZREMRANGEBYLEX', aborted_key, bound(partition, offset), bound(partition, offset + 1, '('))
  end
  add_members(rows_key, added)
  bytes, rows, more_rows = bytes - free(at, count), rows - count, more_rows - count
  if new then
    bytes, rows, more_rows = bytes + new_length, rows + 1, more_rows + 1
    used_bytes[new_segment] = (used_bytes[new_segment] or 0) + new_length
    used_rows[new_segment] = (used_rows[new_segment] or 0) + 1
    cursors[partition] = math.min(cursors[partition] or base, base)
  end
  call('HSET', logs_key, partition,
    pack(LOG, start, high_watermark, bytes, rows, maximum, created, stable, last_append, changed_at, LOG_FORMAT))
  return REPLACED
end

local parts, at = {}, 1
while at <= #request do
  local partition, count, flags, old_at = parse(SWAP, request, at)
  at = old_at + count * GIVEN_BYTES
  local new, ended = nil, {}
  if flags % HAS_ENDED == 1 then
    new, at = sub(request, at, at + GIVEN_BYTES - 1), at + GIVEN_BYTES
  end
  if flags >= HAS_ENDED then
    local number
    number, at = parse('>I4', request, at)
    for index = 1, number do
      ended[index], at = parse('>i8', request, at)
    end
  end
  parts[#parts + 1] = string.char(swap(partition, old_at, count, new, ended))
end
if not changed then
  return reply(parts)
end
note_change(more_rows, more_bytes)
for segment, bytes in pairs(used_bytes) do
  local use = call('HGET', prefix .. 'segments', segment)
  local bytes_before, rows_before = 0, 0
  if use then
    bytes_before, rows_before = parse(USE, use)
  end
  call('ZREM', prefix .. 'garbage', segment)
  call('HSET', prefix .. 'segments', segment, pack(USE, bytes_before + bytes, rows_before + used_rows[segment]))
end
note_freed(freed_bytes, freed_rows)
-- So that the new rows are packed too.
for partition, base in pairs(cursors) do
  local packed = call('HGET', prefix .. 'packed', partition)
  if packed and parse('>i8', packed) > base then
    call('HSET', prefix .. 'packed', partition, pack('>i8', base))
  end
end
return reply(parts)
