-- Everything at one version: i64 version, mark, u32 length, why it is fenced (empty if it is not), then per topic u32 length, name,
-- u32 length, entry.

local parts = { pack('>i8', version), mark, pack('>I4', #(why_fenced or '')), why_fenced or '' }
local topics = call('HGETALL', prefix .. 'topics')
for index = 1, #topics do
  parts[#parts + 1] = pack('>I4', #topics[index])
  parts[#parts + 1] = topics[index]
end
return table.concat(parts)
