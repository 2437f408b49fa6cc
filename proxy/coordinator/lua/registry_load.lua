-- Everything at one version: u64 version, u64 version with which an operator accepted a loss (0 for none), then per topic
-- u32 length, name, u32 length, entry.

local parts = { pack('>I8I8', version, tonumber(call('HGET', prefix .. 'meta', 'accepted') or 0)) }
local topics = call('HGETALL', prefix .. 'topics')
for index = 1, #topics do
  parts[#parts + 1] = pack('>I4', #topics[index])
  parts[#parts + 1] = topics[index]
end
return table.concat(parts)
