-- The whole registry, for a snapshot. Answers i64 position of the next record, then per field: its hash (m: meta, t: topics, k: marks),
-- u32 length, field, u32 length, value.

local parts = { pack('>i8', applied) }
for kind, key in pairs({ m = 'meta', t = 'topics', k = 'marks' }) do
  local found = call('HGETALL', prefix .. key)
  for index = 1, #found, 2 do
    if kind ~= 'm' or found[index] ~= 'proved' then
      parts[#parts + 1] = kind .. pack('>I4', #found[index]) .. found[index] .. pack('>I4', #found[index + 1]) .. found[index + 1]
    end
  end
end
return table.concat(parts)
