package redis

// luaRefund gives back what one key was charged, where a later call of the same request was denied: ARGV[1] is the rule's
// argument, ARGV[2] the time of the charge. What may no longer be there is not given back: what a bucket has drained since, a
// window that has ended, a log's entries that are not among the newest.
const luaRefund = `
local key, argument, position = KEYS[1], ARGV[1], 1
` + luaRule + `
local charged = tonumber(ARGV[2])
local v = pcall('GET', key)
if v and v.err and not string.find(v.err, 'WRONGTYPE', 1, true) then v = call('GET', key) end
if type(v) ~= 'string' then return {} end
if algorithm <= 2 then
	if #v ~= 17 then return {} end
	local at, used, frac = unpack('<I7I4I6', v)
	local drained, rest = 0, 0
	if algorithm == 1 and Y == 1 then
		drained = ((now - now % P) - (charged - charged % P)) / P * R
	elseif now > charged then
		drained, rest = divide(now - charged, R, P)
	end
	if drained >= cost then return {} end
	used, frac = used - cost + drained, frac + rest
	if frac >= P then used, frac = used + 1, frac - P end
	if used < 0 then used, frac = 0, 0 end
	value = pack('<I7I4I6', at, used, frac)
elseif algorithm == 3 then
	if #v ~= 11 then return {} end
	local start, count = unpack('<I7I4', v)
	if start > charged or count < cost then return {} end
	value = pack('<I7I4', start, count - cost)
elseif algorithm == 4 then
	local newest, length = pack('<I4', (charged + (-charged) % X) / X % 4294967296), #v
	local first, charge = length - 4 * cost, string.rep(newest, cost)
	while first >= 11 and length - first <= 4 * cost + 4096 do
		if string.sub(v, first + 1, first + 4 * cost) == charge then
			value = string.sub(v, 1, first) .. string.sub(v, first + 4 * cost + 1)
			break
		end
		first = first - 4
	end
else
	if #v ~= 15 then return {} end
	local start, previous, current = unpack('<I7I4I4', v)
	if start <= charged and current >= cost then
		current = current - cost
	elseif start > charged and start - charged <= P and previous >= cost then
		previous = previous - cost
	end
	value = pack('<I7I4I4', start, previous, current)
end
if value then call('SET', key, value, 'KEEPTTL') end
return {}
`
