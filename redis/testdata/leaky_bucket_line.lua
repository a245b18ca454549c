-- weir: leaky_bucket_line

-- now, and real, is the server's time in microseconds.
local pack, unpack, format = struct.pack, struct.unpack, string.format
local call, pcall = redis.call, redis.pcall
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local real = now

-- divide returns a·b div c and the remainder, exactly, for whole numbers: where the product does not fit a double it takes six bits of a
-- at a time, the highest first, for which b and c must be below 2⁴⁶.
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

-- A rule's part of the argument begins at position. cost is what the request takes, R and P are the limit's requests and period, X and Y what
-- else its algorithm has: where X is 0 and Y is 1, windows of the calendar follow. counts: a rejected request is charged too, as far as it uses
-- the limit up; where it is 'whole' the request is charged whatever the limit says, as core's charge does. shadow: the rule vetoes nothing.
-- peek: nothing is kept. denied: another rule rejects the request, so that one that this rule would admit is not charged. slack is how far a key's
-- time may be ahead of the clock's without being taken for a step back of the clock.
--
-- The algorithm sets ok, remaining, wait, reset and more, and in value what is to be kept until the reset; a value with a header is added to a
-- long log. stays: the key of a bucket that rejects is to last. redirected: the time lies in none of the calendar's windows.
local algorithm, counts, shadow, peek, cost, R, P, X, Y, position = unpack('<BBBBddddd', argument, position)
counts = counts == 1 and peek == 0
local ok, remaining, wait, reset, more, left, slack, value, header, stays, redirected = false, 0, 0, 0, 0, 0, P

-- A value of another type is overwritten, as if nothing were there. What else goes wrong ends the script: a rule that cannot read would admit
-- everything.
local v = pcall('GET', key)
if v and v.err and not string.find(v.err, 'WRONGTYPE', 1, true) then v = call('GET', key) end

-- A key that is shut out by hand has in place of its state 14 bytes, which no state has: when that was, and the end, with which it expires.
-- Where the clock has stepped back, the end steps back with it.
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
	if X == 0 and Y == 1 then position = position + 40 end -- behind the calendar's windows, which nobody has read
	if cost > X then wait = -1 end
else

-- The state of a bucket: at is when, used and frac are the units in use, frac of them in P-ths. It is kept in 17 bytes.
local at, used, frac = now, 0, 0
if v and #v == 17 then at, used, frac = unpack('<I7I4I6', v) end

-- leaky_bucket: X is the capacity: the queue, and the one that leaves. Y is max_delay.
local interval

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
-- The value makes no difference any more after the reset. (A millisecond is added for a server whose expiries count from the script's start.)
local life = format('%d', (reset + (-reset) % 1000) / 1000 + 1)
if header then
	call('SETRANGE', key, 0, header)
	call('APPEND', key, value)
	call('PEXPIRE', key, life)
else
	call('PSETEX', key, life, value)
end
elseif stays and peek == 0 then
-- Where a faster limit has charged the bucket, it was to expire before. (Redis 6.2 does not know the option, and does nothing then: what the
-- fastest of the limits has refilled is forgotten.)
pcall('PEXPIRE', key, format('%d', (reset + (-reset) % 1000) / 1000 + 1), 'GT')
end
if not ok then remaining = -1 - remaining end

if ARGV[2] then return {remaining, wait, reset, more, now} end
return {ok = format('%d %d %d %d', remaining, wait, reset, more)}
