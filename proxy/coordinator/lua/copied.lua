-- Things of a shard as a snapshot has them; the loader puts this file before the scripts that copy or load a shard.
--
-- ENTRY: kind (1 byte, copying.lua), u32 length and name, u8 1 if it exists, u32 length and value: of a field, the score of a member,
-- or the answers to a commit. The value of a member whose score is always 0 is empty.

local SORTED = { g = true, t = true, r = true, i = true, o = true, b = true, f = true }
local NO_SCORES = { r = true, i = true, o = true, b = true }
local KINDS, KEYS_BY_KIND = kinds_of_keys(), {}
for key, kind in pairs(KINDS) do
  KEYS_BY_KIND[kind] = key
end

local function entry(kind, name, value)
  return kind .. pack('>I4', #name) .. name .. (value and pack('>BI4', 1, #value) .. value or pack('>BI4', 0, 0))
end

local function value_of(kind, name)
  if kind == ANSWERS_KIND then
    return call('GET', ANSWERS_PREFIX .. name)
  elseif not SORTED[kind] then
    return call('HGET', KEYS_BY_KIND[kind], name)
  end
  local score = call('ZSCORE', KEYS_BY_KIND[kind], name)
  return score and (NO_SCORES[kind] and '' or score)
end
