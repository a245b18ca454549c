-- weir: replicas

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

-- Each key's part of the argument has, before its rule's: the units to charge to the window before the present one; and 1 if the cost is
-- that of a request, to be decided as usual, or 0 if it is what a node has admitted, to be charged whatever the limit says.
--
-- The reply has eight numbers for each key: those of a decision on a request of that cost; for how much longer the key is blocked by hand; and the state
-- that is left: see core's ReplicaState. At its end is the server's time.
local argument, place = ARGV[1], 1

local function charge(key)
local late, decides, position = unpack('<dd', argument, place)
local denied, one, two, three = false, 0, 0, 0

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

if algorithm == 1 then -- token_bucket

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
else
if decides == 0 then counts = 'whole' end

-- The state of a bucket, in 17 bytes: at is its time; used and frac are the units in use then, with frac in P-ths of a unit. If units of it are
-- held by leases, 19 bytes follow.
local at, used, frac = now, 0, 0
if v and (#v == 17 or #v == 36) then at, used, frac = unpack('<I7I4I6', v) end

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

-- token_bucket: X is the capacity; Y is 1 with refill interval.
local interval = Y == 1

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
		wait = span
	end
end
if room > 0 then remaining = room end
if used > 0 or frac > 0 then
	local units, span = used
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
	reset = span
	if ok or cost == 0 then
		units = used + remaining + 1 - X
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
		more = span
	end
end
if held > 0 then reset = reset + till + span - now end
one, two, three = at, used, frac
end

elseif algorithm == 3 then -- fixed_window

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
else
if decides == 0 then counts = 'whole' end

-- The state of a fixed window, in 11 bytes: when the window began, and the units used in it.
local start, count = 0, 0
if v and #v == 11 then start, count = unpack('<I7I4', v) end

-- fixed_window: if Y is 1 there is a calendar, and the bounds of four windows follow in the argument, as the node has computed them: the
-- window before now's, now's, and two after it, which a state may have after the clock was set back. The server's time chooses among them.
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
one, two = from, count
end

elseif algorithm == 4 then -- sliding_window_log

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
else
if decides == 0 then counts = 'whole' end

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

do
	one = size + added - dead + held
	local over = math.max(one - R, 0)
	if over < size + added - dead then two = expiry(dead + over) elseif held > 0 then two = heldUntil - now end
end
end

elseif algorithm == 5 then -- sliding_window_counter

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
else

if late > 0 then
	local begins, start, previous, current = now - now % P, 0, 0, 0
	if v and #v == 15 then start, previous, current = unpack('<I7I4I4', v) end
	if start == begins then
		previous = math.min(previous + late, 4294967295)
	elseif start < begins then
		if start < begins - P then current = 0 end
		start, current = begins - P, math.min(current + late, 4294967295)
	end
	v = pack('<I7I4I4', start, previous, current)
end
if decides == 0 then counts = 'whole' end

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
one, two, three = from, previous, current
end

else
	error('no algorithm ' .. algorithm)
end

place = position
if value and (cost > 0 or late > 0) then
-- After the reset the value makes no difference. (One millisecond more is for servers that count expiries from the script's start.)
local life = format('%d', (reset + (-reset) % 1000) / 1000 + 1)
if header then
	call('SETRANGE', key, 0, header)
	call('APPEND', key, value)
	call('PEXPIRE', key, life)
else
	call('PSETEX', key, life, value)
end
elseif stays then
-- If a faster limit has charged the bucket, its key would expire earlier. (Redis 6.2 does not know the option GT, and does nothing: there the
-- key expires when the fastest limit has refilled the bucket.)
pcall('PEXPIRE', key, format('%d', (reset + (-reset) % 1000) / 1000 + 1), 'GT')
end
if not ok then remaining = -1 - remaining end
return remaining, wait, reset, more, math.max(left, 0), one, two, three
end
local reply, n = {}, #KEYS
for i = 1, n do
	local numbers = {charge(KEYS[i])}
	if type(numbers[1]) == 'table' then return numbers[1] end -- such a key comes alone
	for j = 1, 8 do reply[8 * i - 8 + j] = numbers[j] end
end
reply[8 * n + 1] = real
return reply
