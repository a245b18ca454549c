package redis

const luaCheck = `
local c = checks[1]
load(c)
if redirected then return {real} end
`

// luaSettleEnd ends what a request has reserved, as core's Memory.settle does. ARGV[2] is 1 where it is to be charged.
const luaSettleEnd = luaCheck + `
if c.inflight or c.count then
	if ARGV[2] == '1' then -- first: where that fails the request stays counted, until its lease ends
		evaluate(c, real, c.cost, false, 'whole')
		if redirected then return {real} end
		keep(c)
	end
	ours('ZREM', heldUnder(c))
else
	local line = ours('LRANGE', c.line, -1000, -1)
	for i = #line, 1, -1 do
		if string.sub(line[i], 1, 8) == c.ticket then
			local tail, length = unpack('<I7I4', line[i], 16)
			local before, after = string.sub(line[i], 27, 26 + length), string.sub(line[i], 27 + length)
			if i == #line then
				call('RPOP', c.line)
				c.tail = tail
				if c.isLog or read('GET', c.key) ~= after then
					-- a log's charges are pending; and where somebody has been charged since, the turn is lost
				elseif length > 0 then
					call('SET', c.key, before, 'KEEPTTL')
				else
					call('DEL', c.key)
				end
			else -- its turn passes unused, unless those behind it leave, too
				local behind = line[i + 1]
				local skipped = unpack('<I4', behind, 23)
				call('LSET', c.line, i - #line, string.sub(behind, 1, 15) .. pack('<I7I4', tail, length) .. before .. string.sub(behind, 27 + skipped))
				call('LREM', c.line, -1, line[i])
			end
			c.dirty = true
			break
		end
	end
	if ours('ZREM', c.pending, c.ticket .. pack('<d', c.cost)) == 1 then c.units, c.dirty = c.units - c.cost, true end
end
save(c)
return {0, 0}
`

// luaRenew has reservations last for ARGV[1] microseconds from now. For each key, ARGV has its members, put together. One that is not there
// any more, since its node stood still for longer than the lease, or Redis has lost it, is made again. The reply says how many were.
const luaRenew = luaOurs + `
local until_, made = format('%.0f', now + ARGV[1]), 0
for i, key in ipairs(KEYS) do
	local members = ARGV[i + 1]
	call('PEXPIRE', key, format('%d', ARGV[1] / 1000 + 1000)) -- first, since without the right to it the members would stay for ever
	for from = 1, #members, 16 do
		made = made + ours('ZADD', key, until_, string.sub(members, from, from + 15))
	end
	call('PEXPIRE', key, format('%d', ARGV[1] / 1000 + 1000))
end
return {made, 0}
`

// luaRelease takes reservations away, of which the arguments are as luaRenew's.
const luaRelease = luaOurs + `
for i, key in ipairs(KEYS) do
	for from = 1, #ARGV[i + 1], 16 do ours('ZREM', key, string.sub(ARGV[i + 1], from, from + 15)) end
end
return {0, 0}
`
