-- core/rate's decideSlidingWindowCounter.

--#part most
	if cost > R then wait = -1 end
--#end

--#part decide

-- The state of a sliding window counter, in 15 bytes: when its window began, and the units used in the window before and in this one.
local start, previous, current = 0, 0, 0
if v and #v == 15 then start, previous, current = unpack('<I7I4I4', v) end

-- sliding_window_counter: windows begin at Y, and at whole periods before and after it. Overlap is how much of the previous window the sliding window still covers. A window's weighted count falls to room
-- when overlap falls below (room+1)·P/count.
local at = now
if start > now then
	if start - now <= slack then at = start else previous, current = 0, 0 end
end
local into = (at - Y) % P
local from = at - into
if start ~= from then
	if owes and current > R and start < from then
		local windows = (from - start) / P
		previous = math.max(math.min(current - (windows - 1) * R, R), 0)
		current = math.max(current - windows * R, 0)
	else
		if from - start == P then previous = current else previous = 0 end
		current = 0
	end
end

-- windowPairFree
local function free(units)
	local room, count, windows = R - units - current, previous, 0
	if room < 0 then
		room, count, windows = R - units, current, 1
		if owes and current > R then
			windows = math.floor((current + units - 1) / R)
			count = math.min(current - (windows - 1) * R, R)
			room = room - math.max(current - windows * R, 0)
		end
	end
	if count <= room then return windows * P end
	local overlap, rest = divide(room + 1, P, count)
	if rest == 0 then overlap = overlap - 1 end
	return (windows + 1) * P - overlap
end

local weighted = 0
if previous > 0 then weighted = divide(previous, P - into, P) end
local late = at - now
ok = cost <= R - weighted - current
if ok then
	if not denied then
		current = current + cost
		value = pack('<I7I4I4', from, previous, current)
	end
else
	if counts then
		current = current + cost
		if current > 4294967295 then current = 4294967295 end
		value = pack('<I7I4I4', from, previous, current)
	end
	wait = -1
	if cost <= R then wait = late - into + free(cost) end
end
remaining = R - weighted - current
if remaining < 0 then remaining = 0 end
if current > R then
	reset = late - into + free(R)
elseif current > 0 then
	reset = late - into + 2 * P - (P + (-P) % current) / current + 1
elseif weighted > 0 then
	reset = late - into + P - (P + (-P) % previous) / previous + 1
end
if (ok or cost == 0) and remaining < R then more = late - into + free(remaining + 1) end
--#end

--#part refund

	if #v ~= 15 then return {} end
	local start, previous, current = unpack('<I7I4I4', v)
	if start <= charged and current >= cost then
		current = current - cost
	elseif start > charged and start - charged <= P and previous >= cost then
		previous = previous - cost
	end
	value = pack('<I7I4I4', start, previous, current)
--#end

--#part settle

if v and #v == 15 and keeps == 0 then
	local start, previous, current = unpack('<I7I4I4', v)
	if start == mark then
		current = math.max(current - (size - spent), 0)
	elseif start == mark + P then
		previous = math.max(previous - (size - spent), 0)
	end
	v = pack('<I7I4I4', start, previous, current)
end
--#end

--#part window

here, ends = from, from + P
--#end

--#part lend

--#put lease.charge
--#end

--#part credit

	if #v ~= 15 then return {} end
	local start, previous, current = unpack('<I7I4I4', v)
	local taken = math.min(cost, current)
	value = pack('<I7I4I4', start, math.max(previous - cost + taken, 0), current - taken)
--#end
