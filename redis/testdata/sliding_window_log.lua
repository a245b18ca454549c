-- weir: sliding_window_log

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

-- longest is how many bytes of a log are read at once.
local longest = 11 + 4 * 192
local v = pcall('GETRANGE', key, 0, longest - 1)
if v.err and not string.find(v.err, 'WRONGTYPE', 1, true) then v = call('GETRANGE', key, 0, longest - 1) end

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

-- A log is a string: when it was written (7 bytes), how many of its entries are dead (4 bytes), and 4 bytes for each entry, the oldest first.
--
-- A log of up to 192 entries is read and written whole. Of a longer log a decision reads only the part that it needs. It appends entries, and
-- counts dead ones in the header; when most entries are dead, it writes the string anew. It finds the first live entry in steps that double
-- and then halve, so that it costs nearly the same however long the log is.
--
-- If leases hold units, 19 bytes follow the 11, as they follow the state of a token bucket.
if type(v) ~= 'string' then v = '' end
local last, dead, size, long, head, held = 0, 0, 0, false, 11, 0
if #v >= 11 then
	local length = #v
	if length == longest then length = call('STRLEN', key) end
	if length % 4 == 2 then head = 30 end
	last, dead = unpack('<I7I4', v)
	size, long = (length - head) / 4, length > longest
	if dead > size or size % 1 > 0 then last, dead, size, long, head = 0, 0, 0, false, 11 end
end

-- What leases hold counts until it would have expired if it had been spent at the last moment.
local record, heldUntil = '', 0
if head == 30 then
	local till, span, lent, owing = unpack('<I7I4I4I4', v, 12)
	if till > real + span then till = real + span end -- the clock has stepped back
	heldUntil = till + (Y + 1) * X
	if heldUntil > now then held = owing end
	if lent > 0 then heldUntil = heldUntil + span end
	if heldUntil > now then held = held + lent end
	if held > 0 then record = string.sub(v, 12, 30) end
end

local function entry(n)
	local from = head + 1 + 4 * n
	if from < longest then return (unpack('<I4', v, from)) end
	return (unpack('<I4', call('GETRANGE', key, from - 1, from + 2)))
end

-- sliding_window_log: X is the quantum, Y the window in quanta.
local at = now
if last > now then
	if last - now <= P then at = last else dead = size end
end
local tick = (at - at % X) / X
if tick - (last - last % X) / X > Y then dead = size end

local function expired(n)
	return (tick + 1 - entry(n)) % 4294967296 > Y
end

if dead < size and expired(dead) then
	local low, step = dead, 1
	while low + step < size and expired(low + step) do low, step = low + step, step * 2 end
	local high = low + step
	if high > size then high = size end
	while high - low > 1 do
		local middle = (low + high - (low + high) % 2) / 2
		if expired(middle) then low = middle else high = middle end
	end
	dead = high
end

local live, added = size - dead, 0
local room = R - live - held
local newest = (at + (-at) % X) / X
ok = cost <= room
if ok then
	if not denied then added = cost end
elseif counts then
	local most = R
	if counts == 'whole' then most = 100000 end
	if live > most then most = live end
	added = cost
	if added > most then added = most end
	if live + added > most then dead = dead + live + added - most end
end

local function expiry(n)
	if n >= size then return (newest + Y) * X - now end
	return (tick + 1 - (tick + 1 - entry(n)) % 4294967296 + Y) * X - now
end

remaining = R - held - (size + added - dead)
if not ok then
	wait = -1
	if cost <= R then wait = expiry(dead + cost - remaining - 1) end
end
local excess = 0
if remaining < 0 then remaining, excess = 0, -remaining end
if size + added > dead then
	reset = expiry(size + added - 1)
	if ok or cost == 0 then more = expiry(dead + excess) end
end
if held > 0 then reset = math.max(reset, heldUntil - now) end
if added > 0 and peek == 0 then
	value = string.rep(pack('<I4', newest % 4294967296), added)
	if not long then
		value = pack('<I7I4', at, 0) .. record .. string.sub(v, head + 1 + 4 * dead, head + 4 * size) .. value
	elseif dead * 2 > size then
		value = pack('<I7I4', at, 0) .. record .. call('GETRANGE', key, head + 4 * dead, -1) .. value
	else
		header = pack('<I7I4', at, dead)
	end
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

return {remaining, wait, reset, more, ARGV[2] and now}
