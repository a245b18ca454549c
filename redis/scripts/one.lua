-- Decides on a request under one rule: a script for each algorithm.

--#part decide
--#put decision.begin

local key, argument, position, denied = KEYS[1], ARGV[1], 1, false
--#put decision.rule
--#put decision.decide

if value and peek == 0 then
--#put decision.keep
elseif stays and peek == 0 then
--#put decision.stay
end
if not ok then remaining = -1 - remaining end
--#end

--#part
--#put one.decide

return {remaining, wait, reset, more, ARGV[2] and now}
--#end
