-- weir: fixed_window

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
	if cost > R then wait = -1 end
else

-- The state of a fixed window: when it began, and how many units were used. It is kept in 11 bytes.
local start, count = 0, 0
if v and #v == 11 then start, count = unpack('<I7I4', v) end

-- fixed_window: where Y is 1 there is a calendar, and the bounds of the windows around now follow in the argument, computed by the node, of
-- which the server's time picks: of the one before, of now's, and of two after, which a clock that was set back can have left behind.
local at = now
if start > now then
	if start - now <= slack then at = start else count = 0 end
end
local from, to
if Y == 1 then
	local a, b, c, d, e
	a, b, c, d, e, position = unpack('<ddddd', argument, position)
	if at < a or at >= e then
		redirected = true
		return {now}
	end
	if at < b then from, to = a, b elseif at < c then from, to = b, c elseif at < d then from, to = c, d else from, to = d, e end
else
	from = at - at % P
	to = from + P
end
if start ~= from then count = 0 end
ok = cost <= R - count
if ok then
	if not denied then
		count = count + cost
		value = pack('<I7I4', from, count)
	end
else
	wait = -1
	if cost <= R then wait = to - now end
	if counts then
		if counts == 'whole' then count = math.min(count + cost, 4294967295) elseif count < R then count = R end
		value = pack('<I7I4', from, count)
	end
end
if count < R then remaining = R - count end
if count > 0 then reset = to - now end
if ok or cost == 0 then more = reset end
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

return {remaining, wait, reset, more, ARGV[2] and now}
