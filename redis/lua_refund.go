package redis

const luaRefundBegin = `
-- Gives back what one key was charged, where a later call of the same request was denied: ARGV[1] is the rule's argument, ARGV[2] the time
-- of the charge. What may no longer be there is not given back: what a bucket has drained since, a window that has ended, a log's entries
-- that are not among the newest.
local key, argument, position = KEYS[1], ARGV[1], 1
`

const luaRefund = `
local charged = tonumber(ARGV[2])
if type(v) ~= 'string' then return {} end
`

const luaRefundEnd = `
if value then call('SET', key, value, 'KEEPTTL') end
return {}
`
