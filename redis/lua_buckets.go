package redis

// luaDrain brings a bucket's state to now, as core's drain does: at is when, used and frac are the units in use, frac of
// them in P-ths. A clock that stepped back leaves the state at its own time, unless by more than a period. The state is kept
// in 17 bytes.
const luaDrain = `
local at, used, frac = now, 0, 0
if v and #v == 17 then at, used, frac = unpack('<I7I4I6', v) end
` + luaOwed + `
if at > now then
	if at - now > P then at, used, frac = now, 0, 0 end
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

// luaOwed is where a script puts in what the bucket owes besides: see luaOwe.
const luaOwed = `-- owed`

// luaSpan sets span to how long it takes from now until so many units, and frac, have drained: core's refillTime and drainTime.
// No time is longer than a hundred years, which a lower limit than has counted could ask for. (A piece of text: a function would be made anew
// in every run.)
const luaSpan = `
	if interval then
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
	end
`

// luaTokenBucket is core's decideTokenBucket. X is the capacity; Y is 1 with refill interval.
const luaTokenBucket = `
local interval = Y == 1
` + luaDrain + `
local room = X - used
if frac > 0 then room = room - 1 end
ok = cost <= room
if ok then
	if denied then cost = 0 end
	used, room = used + cost, room - cost
	if cost > 0 then value = pack('<I7I4I6', at, used, frac) end
else
	if counts then
		if counts == 'whole' then
			used = used + cost
			if used >= 1000000001 then used, frac = 1000000001, 0 end
		elseif used < X then
			used, frac = X, 0
		end
		value, room = pack('<I7I4I6', at, used, frac), 0
	end
	wait = -1
	if cost <= X then
		local units, span = used + cost - X
` + luaSpan + `
		wait = span
	end
end
if room > 0 then remaining = room end
if used > 0 or frac > 0 then
	local units, span = used
` + luaSpan + `
	reset = span
	if ok or cost == 0 then
		units = used + remaining + 1 - X
` + luaSpan + `
		more = span
	end
end
`

// luaLeakyBucket is core's decideLeakyBucket. X is the capacity: the queue, and the one that leaves. Y is max_delay.
const luaLeakyBucket = `
local interval
` + luaDrain + `
local function drainTime(units, frac)
	local span
` + luaSpan + `
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
`
