-- What token_bucket and leaky_bucket share. interval: the bucket is refilled at intervals.

--#part unpack

-- The state of a bucket, in 17 bytes: at is its time; used and frac are the units in use then, with frac in P-ths of a unit. If units of it are
-- held by leases, 19 bytes follow.
local at, used, frac = now, 0, 0
if v and (#v == 17 or #v == 36) then at, used, frac = unpack('<I7I4I6', v) end
--#end

-- Adds what leases hold of a bucket that is refilled continuously.
--#part held

-- What leases hold: when the present epoch ends, how long an epoch lasts, and the units that nodes hold by leases of the present epoch and of the
-- one before. They count as used, but do not drain: nodes may yet spend them. Leases of the epoch before have ended when the present one ends.
-- Then their units are charged, since who has not given them back may have spent them.
local till, span, lent, owing, held, tail = 0, 0, 0, 0, 0, ''
if v and #v == 36 then
	till, span, lent, owing = unpack('<I7I4I4I4', v, 18)
	if till > now + span then till = now + span end -- the clock has stepped back
	while lent + owing > 0 and now >= till do
		if till > at then
			local whole, rest = divide(till - at, R, P)
			at, used, frac = till, used - whole, frac - rest
			if frac < 0 then used, frac = used - 1, frac + P end
			if used < 0 then used, frac = 0, 0 end
		end
		used, owing, lent, till = used + owing, lent, 0, till + span
	end
	held = lent + owing
	if held > 0 then tail = pack('<I7I4I4I4', till, span, lent, owing) end
end
--#end

-- Core's drain.
--#part drain

-- Brings the state to now. If the clock has stepped back, the state keeps its own time; if it has by more than slack, the state starts afresh.
if at > now then
	if at - now > slack then at, used, frac = now, 0, 0 end
else
	if interval then
		used = used - ((now - now % P) - (at - at % P)) / P * R
	elseif used > 0 or frac > 0 then
		local whole, rest = divide(now - at, R, P)
		used, frac = used - whole, frac - rest
		if frac < 0 then used, frac = used - 1, frac + P end
	end
	if used < 0 then used, frac = 0, 0 end
	at = now
end
local late = at - now
--#end

-- Sets span to the time from now until that many units, and frac, have drained: core's refillTime and drainTime. No time is longer than a
-- hundred years; without that bound, one could be after a limit was lowered. It is text and not a function, since each run would make a
-- function anew.
--#part span
	if interval then
		local refills = (units + (-units) % R) / R
		if refills * P > 3153600000000000 then
			span = late + 3153600000000000
		else
			span = late + refills * P - at % P
		end
	else
		local whole, rest = divide(units, P, R)
		rest = rest + frac
		span = whole + (rest + (-rest) % R) / R
		if span > 3153600000000000 then span = 3153600000000000 end
		span = late + span
	end
--#end

--#part refund

	if #v ~= 17 and #v ~= 36 then return {} end
	local at, used, frac = unpack('<I7I4I6', v)
	local drained, rest = 0, 0
	if interval then
		drained = ((now - now % P) - (charged - charged % P)) / P * R
	elseif now > charged then
		drained, rest = divide(now - charged, R, P)
	end
	if drained >= cost then return {} end
	used, frac = used - cost + drained, frac + rest
	if frac >= P then used, frac = used + 1, frac - P end
	if used < 0 then used, frac = 0, 0 end
	value = pack('<I7I4I6', at, used, frac) .. string.sub(v, 18)
--#end

--#part credit

	if #v ~= 17 and #v ~= 36 then return {} end
	local at, used, frac = unpack('<I7I4I6', v)
	used = used - cost
	if used < 0 then used, frac = 0, 0 end
	value = pack('<I7I4I6', at, used, frac) .. string.sub(v, 18)
--#end
