-- Part of an index with everything in it, for audits: also rows that no reader gets.
--
-- ARGV[2]  topic ID and partition (20 bytes), i64 offset: rows that end before it are left out; u32: about how many rows
-- Answers u8 1 if the log exists; log start, high watermark, log end, bytes, rows, maximum timestamp (i64 each); i64 offset
-- to continue from, -1 at the end; then ROWs. All rows of a pack have its running maximum.

local PAGE = 16 -- members of an index

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
        rows[#rows + 1] = pack(ROW, last, 0, format, base, segment, position, length, maximum, append_time, running)
      end
    else
      rows[#rows + 1] = sub(member, PARTITION_BYTES + 1)
    end
  end
  next_offset = #page == PAGE and parse('>i8', page[PAGE], LAST_AT) + 1 or -1
end
local log = call('HGET', logs_key, partition)
local figures = log and '\1' .. sub(log, 1, 48) or string.rep('\0', 49)
return reply({ figures, pack('>i8', next_offset), unpack(rows) })
