-- Offsets by timestamp, or by one of ListOffsets' special timestamps.
--
-- ARGV[2]  requests: topic ID and partition (20 bytes), i64 timestamp
-- Answers, per request: i16 error, i64 offset, i64 timestamp; both -1 where nothing matches.

local REQUEST, REQUEST_BYTES = '>c20i8', 28
local LATEST_TIMESTAMP, EARLIEST_TIMESTAMP, MAX_TIMESTAMP = -1, -2, -3

local request = ARGV[2]

-- Offset and timestamp of the first of `count` rows whose running maximum reaches `timestamp`, where one does.
-- That is also the first whose own maximum does: the running one reaches it there.
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
    return -1, -1
  end
  local _, base, _, _, _, _, maximum = parse(ROW, found)
  return math.max(base, log_start), maximum
end

local function look_up(partition, log, timestamp)
  local log_start, high_watermark = parse(LOG, log)
  if timestamp == EARLIEST_TIMESTAMP then
    return log_start, -1
  elseif timestamp == LATEST_TIMESTAMP then
    return high_watermark, -1
  end
  local key = prefix .. 'index:' .. partition
  local confirmed = call('ZCOUNT', key, '-inf', high_watermark - 1)
  if timestamp == MAX_TIMESTAMP and confirmed > 0 then
    local newest = call('ZRANGE', key, confirmed - 1, confirmed - 1)[1]
    timestamp = parse('>i8', newest, ROW_RUNNING_MAXIMUM_AT)
  end
  return first_row_from(key, confirmed, timestamp, log_start)
end

local parts = {}
for at = 1, #request, REQUEST_BYTES do
  local partition, timestamp = parse(REQUEST, request, at)
  local log = call('HGET', prefix .. 'logs', partition)
  if log then
    parts[#parts + 1] = pack('>i2i8i8', 0, look_up(partition, log, timestamp))
  else
    parts[#parts + 1] = pack('>i2i8i8', UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
  end
end
return reply(parts)
