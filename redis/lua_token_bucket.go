package redis

// luaTokenBucket is core's decideTokenBucket.
const luaTokenBucket = `
-- token_bucket: X is the capacity; Y is 1 with refill interval.` + luaIntervals + luaDrain + `
used = used + held
local room = X - used
if frac > 0 then room = room - 1 end
ok = cost <= room
if ok then
	if denied then cost = 0 end
	used, room = used + cost, room - cost
	if cost > 0 then value = pack('<I7I4I6', at, used - held, frac) .. tail end
else
	stays = true
	if counts then
		if counts == 'whole' then
			used = used + cost
			if used >= 1000000001 then used, frac = 1000000001, 0 end
		elseif used < X then
			used, frac = X, 0
		end
		value, room = pack('<I7I4I6', at, used - held, frac) .. tail, 0
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
if held > 0 then reset = reset + till + span - now end
`
