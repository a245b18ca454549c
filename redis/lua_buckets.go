package redis

const luaIntervals = "\nlocal interval = Y == 1\n" // a bucket may be refilled at intervals
const luaContinuous = "\nlocal interval\n"         // it drains continuously

const luaUnpackBucket = `
-- The state of a bucket: at is when, used and frac are the units in use, frac of them in P-ths. It is kept in 17 bytes.
local at, used, frac = now, 0, 0
if v and #v == 17 then at, used, frac = unpack('<I7I4I6', v) end
`

// luaDrain is core's drain.
const luaDrain = `
-- The state is brought to now. A clock that stepped back leaves it at its own time, unless by more than a period.
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

// luaSpan sets span to how long it takes from now until so many units, and frac, have drained: core's refillTime and drainTime.
// No time is longer than a hundred years, which a lower limit than has counted could ask for. (A piece of text: a function would be made anew
// in every run.)
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
-- What is lent is added: while there is tolerance the rule's own limit decides on what the bucket would be without, and the wide one charges it.
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
