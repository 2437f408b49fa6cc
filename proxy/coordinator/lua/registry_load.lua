-- Everything at one version: u64 version, then per topic u32 length, name, u32 length, entry.

local parts = { pack('>I8', version) }
local topics = call('HGETALL', prefix .. 'topics')
for index = 1, #topics do
  parts[#parts + 1] = pack('>I4', #topics[index])
  parts[#parts + 1] = topics[index]
end
return table.concat(parts)
