-- The answers of an earlier try of a commit. The loader makes a function of this file, so that the first try creates nothing of it.

local BATCH_ANSWER, BATCH_ANSWER_BYTES, WHAT_AT, EARLY = '>i2Bi8i8', 19, 3, 2 -- as in commit.lua
local answers = {}

-- Whether an answer, or any of several, is EARLY.
function answers.any_early(batch_answers)
  for at = WHAT_AT, #batch_answers, BATCH_ANSWER_BYTES do
    if string.byte(batch_answers, at) == EARLY then
      return true
    end
  end
  return false
end

-- The answer of the last time; a batch that was EARLY gets the error in its place.
function answers.with_early_as(error_code, known)
  local changed = {}
  for at = 1, #known, BATCH_ANSWER_BYTES do
    local answer = sub(known, at, at + BATCH_ANSWER_BYTES - 1)
    changed[#changed + 1] = answers.any_early(answer) and pack(BATCH_ANSWER, error_code, 0, -1, -1) or answer
  end
  return table.concat(changed)
end

return answers
