-- core/rate's decideFixedWindow.

--#part most
	if cost > R then wait = -1 end
--#end

--#part decide

-- The state of a fixed window, in 11 bytes: when the window began, and the units used in it.
local start, count = 0, 0
if v and #v == 11 then start, count = unpack('<I7I4', v) end

-- fixed_window: windows begin at Y (which depends on the key if they are spread), and at whole periods before and after it. If Y is -1 each begins with
-- the first request in it. If Y is 1 there is a calendar, and the bounds of four windows follow in the argument, as the node has computed them: the
-- window before now's, now's, and two after it, which a state may have after the clock was set back. The server's time chooses among them.
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
	from = at - (at - (Y == -1 and start or Y)) % P
	to = from + P
end
local usual = P -- how long a window lasts on average, with a calendar
if owes and Y == 1 then
	usual = P - 7200000000
	if usual == 2678400000000 then usual = 2629746000000 end
end
if start ~= from then
	if owes and start < from and count > R then
		count = math.max(count - math.floor((from - start + math.floor(usual / 2)) / usual) * R, 0)
	else
		count = 0
	end
end
if Y == -1 and count == 0 then from, to = at, at + P end
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
if owes and count + R > 2 * R then -- windows behind this one must pass until no more than R are left
	local function behind(units)
		if units <= 2 * R then return 0 end
		return math.min(math.floor((units - 1) / R) - 1, math.floor(3153600000000000 / usual)) * usual
	end
	if wait > 0 then wait = wait + behind(count + cost) end
	if more > 0 then more = more + behind(count + 1) end
	reset = reset + behind(count + R)
end
--#end

--#part refund

	if #v ~= 11 then return {} end
	local start, count = unpack('<I7I4', v)
	if start > charged or count < cost then return {} end
	value = pack('<I7I4', start, count - cost)
--#end

--#part settle

if v and #v == 11 and keeps == 0 then
	local start, count = unpack('<I7I4', v)
	if start == mark then v = pack('<I7I4', start, math.max(count - (size - spent), 0)) end
end
--#end

--#part window

here, ends = from, to
--#end

--#part lend

--#put lease.charge
--#end

--#part credit

	if #v ~= 11 then return {} end
	local start, count = unpack('<I7I4', v)
	value = pack('<I7I4', start, math.max(count - cost, 0))
--#end
