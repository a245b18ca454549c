-- core/rate's decideSlidingWindowCounter.

--#part most
	if cost > R then wait = -1 end
--#end

--#part decide

-- The state of a sliding window counter, in 15 bytes: when its window began, and the units used in the window before and in this one.
local start, previous, current = 0, 0, 0
if v and #v == 15 then start, previous, current = unpack('<I7I4I4', v) end

-- sliding_window_counter: overlap is how much of the previous window the sliding window still covers. A window's weighted count falls to room
-- when overlap falls below (room+1)·P/count.
local at = now
if start > now then
	if start - now <= slack then at = start else previous, current = 0, 0 end
end
local into = at % P
local from = at - into
if start ~= from then
	if from - start == P then previous = current else previous = 0 end
	current = 0
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
	if cost <= R then
		local room, count = R - cost - current, previous
		wait = late - into
		if room < 0 then
			room, count = R - cost, current
			wait = wait + P
		end
		if count > room then
			local overlap, rest = divide(room + 1, P, count)
			if rest == 0 then overlap = overlap - 1 end
			wait = wait + P - overlap
		end
	end
end
remaining = R - weighted - current
if remaining < 0 then remaining = 0 end
if current > 0 then
	reset = late - into + 2 * P - (P + (-P) % current) / current + 1
elseif weighted > 0 then
	reset = late - into + P - (P + (-P) % previous) / previous + 1
end
if (ok or cost == 0) and remaining < R then
	local room, count = R - remaining - 1 - current, previous
	more = late - into
	if room < 0 then
		room, count = R - remaining - 1, current
		more = more + P
	end
	local overlap, rest = divide(room + 1, P, count)
	if rest == 0 then overlap = overlap - 1 end
	more = more + P - overlap
end
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
