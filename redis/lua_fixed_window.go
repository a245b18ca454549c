package redis

// luaFixedWindow is core's decideFixedWindow.
const luaFixedWindow = `
-- The state of a fixed window: when it began, and how many units were used. It is kept in 11 bytes.
local start, count = 0, 0
if v and #v == 11 then start, count = unpack('<I7I4', v) end

-- fixed_window: where Y is 1 there is a calendar, and the bounds of the windows around now follow in the argument, computed by the node, of
-- which the server's time picks: of the one before, of now's, and of two after, which a clock that was set back can have left behind.
local at = now
if start > now then
	if start - now <= slack then at = start else count = 0 end
end
local from, to
if Y == 1 then
	local a, b, c, d, e
	a, b, c, d, e, position = unpack('<ddddd', argument, position)
	if at < a or at >= e then
		redirected = true
		return {now}
	end
	if at < b then from, to = a, b elseif at < c then from, to = b, c elseif at < d then from, to = c, d else from, to = d, e end
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
		if counts == 'whole' then count = math.min(count + cost, 4294967295) elseif count < R then count = R end
		value = pack('<I7I4', from, count)
	end
end
if count < R then remaining = R - count end
if count > 0 then reset = to - now end
if ok or cost == 0 then more = reset end
`

const luaRefundFixedWindow = `
	if #v ~= 11 then return {} end
	local start, count = unpack('<I7I4', v)
	if start > charged or count < cost then return {} end
	value = pack('<I7I4', start, count - cost)
`
