-- core/rate's decideLeakyBucket. This algorithm has no leases.

--#part most
	if cost > X then wait = -1 end
--#end

--#part decide
--#put bucket.unpack

-- leaky_bucket: X is the capacity: the queue, and the request that leaves it. Y is max_delay.
local interval
--#put bucket.drain

local function drainTime(units, frac)
	local span
--#put bucket.span
	return span
end
repeat
	local room = X - used
	if frac > 0 then room = room - 1 end
	local queue, again = 0, false
	if used > 0 or frac > 0 then queue = drainTime(used, frac) end
	reset = queue
	ok = cost <= room and queue <= Y
	if ok and not denied then
		room, used, wait = room - cost, used + cost, queue
		reset = drainTime(used, frac)
		value = pack('<I7I4I6', at, used, frac)
	elseif not ok then
		stays = true
		if counts then
			again = true
			if counts == 'whole' or cost <= room then
				used = used + cost
				if used >= 1000000001 then used, frac = 1000000001, 0 end
			elseif used < X then
				used, frac = X, 0
			end
			counts, value = false, pack('<I7I4I6', at, used, frac)
		end
		wait = -1
		if cost <= X then
			wait = queue - Y
			if cost > room then
				local whole = drainTime(used + cost - X, frac)
				if whole > wait then wait = whole end
			end
		end
	end
	remaining = room
	if room < 0 then remaining = 0 elseif room > X - 1 then remaining = X - 1 end
until not again
if (ok or cost == 0) and remaining < X - 1 then more = drainTime(used + remaining + 1 - X, frac) end
--#end

--#part refund

local interval
--#put bucket.refund
--#end

--#part credit
--#put bucket.credit
--#end
