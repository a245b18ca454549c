--#part
--#put decision.begin

-- Gives back a charge to one key, after a later call of the same request has rejected it. ARGV[1] is the rule's argument, ARGV[2] the time
-- of the charge. Units that may be gone by now are not given back: those that a bucket has drained since, those of a window that has ended,
-- and a log's entries that are not among the newest.
local key, argument, position = KEYS[1], ARGV[1], 1
--#put decision.rule
--#put algorithm.read

local charged = tonumber(ARGV[2])
if type(v) ~= 'string' then return {} end
--#each .refund

if value then call('SET', key, value, 'KEEPTTL') end
return {}
--#end
