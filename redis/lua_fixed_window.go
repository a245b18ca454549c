package redis

// luaFixedWindow is core's decideFixedWindow. Where Y is 1 there is a calendar, and the bounds of the windows around now follow in
// the argument: four of them, computed by the node, of which the server's time picks.
const luaFixedWindow = `
local v = pcall('GET', key)
local start, count = 0, 0
if v and #v == 11 then start, count = unpack('<I7I4', v) end
local at = now
if start > now then
	if start - now <= P then at = start else count = 0 end
end
local from, to
if Y == 1 then
	local a, b, c, d
	a, b, c, d, position = unpack('<dddd', argument, position)
	if at < a or at >= d then return {now} end
	if at < b then from, to = a, b elseif at < c then from, to = b, c else from, to = c, d end
else
	from = at - at % P
	to = from + P
end
if start ~= from then count = 0 end
ok = cost <= R - count
if ok then
	if not denied then
		count = count + cost
		value = pack('<I7I4', from, count)
	end
else
	wait = -1
	if cost <= R then wait = to - now end
	if counts then
		if count < R then count = R end
		value = pack('<I7I4', from, count)
	end
end
if count < R then remaining = R - count end
if count > 0 then reset = to - now end
`
