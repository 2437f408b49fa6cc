-- Part of an index with everything in it, for audits: also rows that no reader gets.
--
-- ARGV[2]  topic ID and partition (20 bytes), i64 offset: rows that end before it are left out; u32: about how many rows
-- Answers u8 1 if the log exists; log start, high watermark, bytes, rows, maximum timestamp, last stable offset, first offset
-- of the oldest open transaction or -1 (i64 each); i64 offset to continue from, -1 at the end; u32 rows, u32 open transactions; then
-- ROWs; first offset, producer ID and the first offset in the producer's TXN (-1 without one) of transactions that
-- begin in these offsets; ABORTED of those that end there. All rows of a pack have its running maximum.

local PAGE = 16 -- members of an index
local MOST_TRANSACTIONS = 5000 -- of a page, unless a single row has more

local partition, from, most = parse('>c20i8I4', ARGV[2])

local rows, next_offset = {}, from
while next_offset >= 0 and #rows < most do
  local page = members_from(partition, next_offset, nil, PAGE)
  for _, member in ipairs(page) do
    if is_pack(member) then
      local format = string.byte(member, FORMAT_AT) - PACK_FORMAT + FORMAT
      local running = parse('>i8', member, RUNNING_MAXIMUM_AT)
      local first = row_of_offset(member, next_offset)
      for _, base, last, segment, position, length, maximum, append_time in each_row(member, first) do
        rows[#rows + 1] = pack(ROW, last, base, 0, format, segment, append_time, position, length, maximum, running)
      end
    else
      rows[#rows + 1] = sub(member, PARTITION_BYTES + 1)
    end
  end
  next_offset = #page == PAGE and parse('>i8', page[PAGE], LAST_AT) + 1 or -1
end

-- After the last member of `open` or `aborted` in the page's offsets.
local function page_end()
  return next_offset >= 0 and bound(partition, next_offset, '(') or end_of(partition)
end

local function transactions()
  local first, last = bound(partition, from), page_end()
  return call('ZLEXCOUNT', open_key, first, last) + call('ZLEXCOUNT', aborted_key, first, last)
end

while #rows > 1 and transactions() > MOST_TRANSACTIONS do
  for index = math.ceil(#rows / 2) + 1, #rows do
    rows[index] = nil
  end
  next_offset = parse('>i8', rows[#rows]) + 1
end

local parts = {}
for _, member in ipairs(call('ZRANGEBYLEX', open_key, bound(partition, from), page_end())) do
  local first, id = parse('>i8c8', member, PARTITION_BYTES + 1)
  local known = call('HGET', transactions_key, partition .. id)
  local _, first_of_producer = parse(TXN, known or pack(TXN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, 0))
  parts[#parts + 1] = pack('>i8c8i8', first, id, first_of_producer)
end
local opened = #parts
for _, member in ipairs(call('ZRANGEBYLEX', aborted_key, bound(partition, from), page_end())) do
  parts[#parts + 1] = sub(member, PARTITION_BYTES + 1)
end
local log = call('HGET', logs_key, partition)
local figures = string.rep('\0', 57)
if log then
  local _, _, _, _, _, _, stable = parse(LOG, log)
  figures = '\1' .. sub(log, 1, 40) .. pack('>i8i8', stable, first_unstable(partition, UNKNOWN))
end
return reply({ figures, pack('>i8I4I4', next_offset, #rows, opened), table.concat(rows), table.concat(parts) })
