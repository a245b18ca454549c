package redis

const luaIntervals = "\nlocal interval = Y == 1\n" // a bucket may be refilled at intervals
const luaContinuous = "\nlocal interval\n"         // a bucket that drains continuously

const luaUnpackBucket = `
-- The state of a bucket, in 17 bytes: at is its time; used and frac are the units in use then, with frac in P-ths of a unit.
local at, used, frac = now, 0, 0
if v and #v == 17 then at, used, frac = unpack('<I7I4I6', v) end
`

// luaDrain is core's drain.
const luaDrain = `
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
`

// luaSpan sets span to the time from now until that many units, and frac, have drained: core's refillTime and drainTime. No time is longer
// than a hundred years; without that bound, one could be after a limit was lowered. It is text and not a function, since each run would make
// a function anew.
const luaSpan = `	if interval then
		local refills = (units + (-units) % R) / R
		if refills * P > 3153600000000000 then
			span = late + 3153600000000000
		else
			span = late + ((at - at % P) / P + refills) * P - at
		end
	else
		local whole, rest = divide(units, P, R)
		rest = rest + frac
		span = whole + (rest + (-rest) % R) / R
		if span > 3153600000000000 then span = 3153600000000000 end
		span = late + span
	end`

const luaLent = `
-- Adds what was lent. While there is tolerance, the wide limit charges the bucket. The rule's own limit decides by what the bucket would have
-- without tolerance.
if v and #v == 17 and at == owedAt then
	used, frac = used + owed, frac + owedFrac
	if frac >= P then used, frac = used + 1, frac - P end
	if used >= 1000000001 then used, frac = 1000000001, 0 end
end
`

const luaRefundBucket = `
	if #v ~= 17 then return {} end
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
	value = pack('<I7I4I6', at, used, frac)
`
