-- Gives units back to one key, as core/rate's Credit: the cost in the rule's argument.

--#part
--#put decision.begin

local key, argument, position = KEYS[1], ARGV[1], 1
--#put decision.rule
--#put algorithm.read

if type(v) ~= 'string' then return {} end
--#each .credit

if value then call('SET', key, value, 'KEEPTTL') end
return {}
--#end
