-- Offsets by timestamp, or by one of ListOffsets' special timestamps.
--
-- ARGV[2]  requests: topic ID and partition (20 bytes), i64 timestamp
-- Answers, per request: i16 error, i64 offset, i64 timestamp; both -1 where nothing matches. Error -2: look for the
-- timestamp (a latest one for MAX_TIMESTAMP) from the offset on, row by row.

local REQUEST, REQUEST_BYTES = '>c20i8', 28
local LATEST_TIMESTAMP, EARLIEST_TIMESTAMP, MAX_TIMESTAMP = -1, -2, -3
local SEARCH = -2
local MOST_ROWS_SEARCHED = 100

local request = ARGV[2]

-- Error, offset and timestamp of the first of `count` rows whose own maximum reaches `timestamp`, where one does.
-- That is the first whose running maximum does, but where that is the maximum of a row that was trimmed away.
local function first_row_from(key, count, timestamp, log_start)
  local low, high, found = 0, count, nil
  while low < high do
    local middle = math.floor((low + high) / 2)
    local row = call('ZRANGE', key, middle, middle)[1]
    if parse('>i8', row, ROW_RUNNING_MAXIMUM_AT) >= timestamp then
      high, found = middle, row
    else
      low = middle + 1
    end
  end
  if not found then
    return 0, -1, -1
  end
  local _, base, last, _, _, _, maximum = parse(ROW, found)
  if maximum >= timestamp then
    return 0, math.max(base, log_start), maximum
  end
  for _, row in ipairs(call('ZRANGE', key, low, math.min(low + MOST_ROWS_SEARCHED, count) - 1)) do
    _, base, last, _, _, _, maximum = parse(ROW, row)
    if maximum >= timestamp then
      return 0, math.max(base, log_start), maximum
    end
  end
  if low + MOST_ROWS_SEARCHED >= count then
    return 0, -1, -1
  end
  return SEARCH, last + 1, -1
end

-- As `first_row_from` for the highest timestamp of the `count` rows.
local function first_newest_row(key, count, log_start)
  if count == 0 then
    return 0, -1, -1
  end
  local newest = call('ZRANGE', key, count - 1, count - 1)[1]
  local error_code, offset, timestamp =
    first_row_from(key, count, parse('>i8', newest, ROW_RUNNING_MAXIMUM_AT), log_start)
  if error_code == SEARCH or offset == -1 then
    return SEARCH, log_start, -1
  end
  return 0, offset, timestamp
end

local function look_up(partition, log, timestamp)
  local log_start, high_watermark = parse(LOG, log)
  if timestamp == EARLIEST_TIMESTAMP then
    return 0, log_start, -1
  elseif timestamp == LATEST_TIMESTAMP then
    return 0, high_watermark, -1
  end
  local key = prefix .. 'index:' .. partition
  local confirmed = call('ZCOUNT', key, '-inf', high_watermark - 1)
  if timestamp == MAX_TIMESTAMP then
    return first_newest_row(key, confirmed, log_start)
  end
  return first_row_from(key, confirmed, timestamp, log_start)
end

local parts = {}
for at = 1, #request, REQUEST_BYTES do
  local partition, timestamp = parse(REQUEST, request, at)
  local log = call('HGET', prefix .. 'logs', partition)
  if log then
    parts[#parts + 1] = pack('>i2i8i8', look_up(partition, log, timestamp))
  else
    parts[#parts + 1] = pack('>i2i8i8', UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
  end
end
return reply(parts)
