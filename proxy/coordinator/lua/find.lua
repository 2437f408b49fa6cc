-- Rows to read.
--
-- ARGV[2]  requests: topic ID and partition (20 bytes), i64 offset, i64 most bytes
-- ARGV[3]  u32: most rows per request; u32: most rows in all (each request gets at least its first row)
-- Answers, per request: i16 error, i64 log start, i64 high watermark, i64 last stable offset, u32 rows, u32 aborted transactions, then
-- the rows, and ABORTED of those transactions that did not end before the first row and began before the end of the last one. No row for
-- an offset below the high watermark means that the rest of the log is a gap that unfence.lua made.

local REQUEST, REQUEST_BYTES = '>c20i8i8', 36
local OFFSET_OUT_OF_RANGE = 1
local ANSWER = '>i2i8i8i8I4I4'
local ROW_BASE_AT = 9 -- in a ROW
local FIRST_PAGE, PAGE_GROWTH, LARGEST_PAGE = 1, 8, 64 -- in members of an index; a pack has many rows

local request = ARGV[2]
local most_rows, most_rows_in_all = parse('>I4I4', ARGV[3])

local function collect(partition, from, high_watermark, most_bytes)
  local rows, bytes, page = {}, 0, FIRST_PAGE
  local row_limit = math.min(most_rows, most_rows_in_all)

  -- True if there are enough rows.
  local function add(row, length)
    rows[#rows + 1], bytes = row, bytes + length
    return bytes >= most_bytes or #rows >= row_limit
  end

  -- A reader uses neither the log start nor the running maximum of a row.
  local function add_pack(member)
    local format = string.byte(member, FORMAT_AT) - PACK_FORMAT + FORMAT
    local first = row_of_offset(member, from)
    for _, base, last, segment, position, length, maximum, append_time in each_row(member, first) do
      if add(pack(ROW, last, base, 0, format, segment, append_time, position, length, maximum, maximum), length) then
        return true
      end
    end
    return false
  end

  while from < high_watermark do
    local found = members_from(partition, from, high_watermark, page)
    for _, member in ipairs(found) do
      local enough
      if is_pack(member) then
        enough = add_pack(member)
      else
        enough = add(sub(member, PARTITION_BYTES + 1), parse('>I4', member, LENGTH_AT))
      end
      if enough then
        return rows
      end
    end
    if #found < page then
      return rows
    end
    from, page = parse('>i8', found[#found], LAST_AT) + 1, math.min(page * PAGE_GROWTH, LARGEST_PAGE)
  end
  return rows
end

-- ABORTED of the transactions that may concern the offsets from one to the other. They come in the order of their ends, and a later
-- one begins no earlier than the last stable offset at the end of one before.
local has_aborted
local function aborted_between(partition, from, until_offset)
  if has_aborted == nil then
    has_aborted = call('ZLEXCOUNT', aborted_key, '-', '+') > 0
  end
  local found, page = {}, nil
  local place = bound(partition, from)
  repeat
    page = has_aborted and call('ZRANGEBYLEX', aborted_key, place, end_of(partition), 'LIMIT', '0', LARGEST_PAGE) or {}
    for _, member in ipairs(page) do
      local _, first, _, stable = parse(ABORTED, member, PARTITION_BYTES + 1)
      if first < until_offset then
        found[#found + 1] = sub(member, PARTITION_BYTES + 1)
      end
      if stable >= until_offset then
        return found
      end
      place = '(' .. member
    end
  until #page < LARGEST_PAGE
  return found
end

local parts = {}
local function add_answer(error_code, log_start, high_watermark, stable, rows, aborted)
  parts[#parts + 1] = pack(ANSWER, error_code, log_start, high_watermark, math.max(stable, log_start), #rows, #aborted)
    .. table.concat(rows) .. table.concat(aborted)
end

for at = 1, #request, REQUEST_BYTES do
  local partition, offset, most_bytes = parse(REQUEST, request, at)
  local log = call('HGET', logs_key, partition)
  if not log then
    add_answer(UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1, {}, {})
  else
    local log_start, high_watermark, _, _, _, _, stable = parse(LOG, log)
    if offset < log_start or offset > high_watermark then
      add_answer(OFFSET_OUT_OF_RANGE, log_start, high_watermark, stable, {}, {})
    else
      local rows = collect(partition, offset, high_watermark, most_bytes)
      most_rows_in_all = math.max(1, most_rows_in_all - #rows)
      local aborted = {}
      if rows[1] then
        aborted = aborted_between(partition, parse('>i8', rows[1], ROW_BASE_AT), parse('>i8', rows[#rows]) + 1)
      end
      add_answer(0, log_start, high_watermark, stable, rows, aborted)
    end
  end
end
return reply(parts)
