-- weir: leaky_bucket

-- now and real are the server's time, in microseconds.
local pack, unpack, format = struct.pack, struct.unpack, string.format
local call, pcall = redis.call, redis.pcall
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local real = now

-- divide returns the quotient and the remainder of a·b divided by c, exactly, for whole numbers. If the product does not fit a double, it
-- divides six bits of a at a time, the highest first. For that b and c must be below 2⁴⁶.
local function divide(a, b, c)
	local product = a * b
	if product < 9007199254740992 then
		local rest = product % c
		return (product - rest) / c, rest
	end
	local scale, quotient, rest = 1, 0, 0
	while scale * 64 <= a do scale = scale * 64 end
	while scale >= 1 do
		local low = a % scale
		local sum = rest * 64 + (a - low) / scale * b
		rest = sum % c
		quotient = quotient * 64 + (sum - rest) / c
		a, scale = low, scale / 64
	end
	return quotient, rest
end

local key, argument, position, denied = KEYS[1], ARGV[1], 1, false

-- A rule's part of the argument begins at position.
--
-- cost: the request's cost.
-- R, P: the limit's requests and period.
-- X, Y: the algorithm's other numbers. If X is 0 and Y is 1, windows of the calendar follow.
-- counts: charge a rejected request too, up to the limit; if 'whole', charge the request whatever the limit says, as core's charge does.
-- shadow: the rule rejects no request.
-- peek: keep nothing.
-- denied: another rule rejects the request, so do not charge one that this rule would admit.
-- slack: how far a key's time may be ahead of the clock; if it is further ahead, the clock has stepped back.
--
-- The algorithm sets ok, remaining, wait, reset and more, and these:
--
-- value: the value to keep until the reset; with a header, what to append to a long log.
-- stays: a bucket rejects, and its key must last until the reset.
-- redirected: the time lies in none of the calendar's windows.
local algorithm, counts, shadow, peek, cost, R, P, X, Y, position = unpack('<BBBBddddd', argument, position)
counts = counts == 1 and peek == 0
local ok, remaining, wait, reset, more, left, slack, value, header, stays, redirected = false, 0, 0, 0, 0, 0, P

-- A value of another type counts as none, and is overwritten. Any other error ends the script: a rule that cannot read would admit everything.
local v = pcall('GET', key)
if v and v.err and not string.find(v.err, 'WRONGTYPE', 1, true) then v = call('GET', key) end

-- A key that is blocked by hand has 14 bytes in place of its state, a length that no state has: when the block began, and when it ends. The
-- key expires with it. If the clock has stepped back, the end steps back as far.
if v and #v == 14 then
	local from, till = unpack('<I7I7', v)
	if from > real then
		till = till - from + real
		call('PSETEX', key, format('%d', (till - real + (real - till) % 1000) / 1000 + 1), pack('<I7I7', real, till))
	end
	left, v = till - now, false
end
if left > 0 then
	wait, reset = left, left
	if X == 0 and Y == 1 then position = position + 40 end -- skips the calendar's windows
	if cost > X then wait = -1 end
else

-- The state of a bucket, in 17 bytes: at is its time; used and frac are the units in use then, with frac in P-ths of a unit. If units of it are
-- held by leases, 19 bytes follow.
local at, used, frac = now, 0, 0
if v and (#v == 17 or #v == 36) then at, used, frac = unpack('<I7I4I6', v) end

-- leaky_bucket: X is the capacity: the queue, and the request that leaves it. Y is max_delay.
local interval

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

local function drainTime(units, frac)
	local span
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
end

if value and peek == 0 then
-- After the reset the value makes no difference. (One millisecond more is for servers that count expiries from the script's start.)
local life = format('%d', (reset + (-reset) % 1000) / 1000 + 1)
if header then
	call('SETRANGE', key, 0, header)
	call('APPEND', key, value)
	call('PEXPIRE', key, life)
else
	call('PSETEX', key, life, value)
end
elseif stays and peek == 0 then
-- If a faster limit has charged the bucket, its key would expire earlier. (Redis 6.2 does not know the option GT, and does nothing: there the
-- key expires when the fastest limit has refilled the bucket.)
pcall('PEXPIRE', key, format('%d', (reset + (-reset) % 1000) / 1000 + 1), 'GT')
end
if not ok then remaining = -1 - remaining end

return {remaining, wait, reset, more, ARGV[2] and now}
