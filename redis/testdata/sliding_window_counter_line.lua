-- weir: sliding_window_counter_line

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
	if cost > R then wait = -1 end
else

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

if ARGV[2] then return {remaining, wait, reset, more, now} end
if ok and wait == 0 then
	local seconds, sooner = (reset + (-reset) % 1000000) / 1000000, (more + (-more) % 1000000) / 1000000
	return {ok = format('%d 0 %d %d %d %d %s', remaining, reset, more, seconds, sooner, key)}
end
return {ok = format('%d %d %d %d', remaining, wait, reset, more)}
