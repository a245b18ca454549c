-- core/rate's DecideSlidingWindowLog.

--#part read

-- longest is how many bytes of a log are read at once.
local longest = 11 + 4 * 192
local v = pcall('GETRANGE', key, 0, longest - 1)
if v.err and not string.find(v.err, 'WRONGTYPE', 1, true) then v = call('GETRANGE', key, 0, longest - 1) end
--#end

--#part most
	if cost > R then wait = -1 end
--#end

--#part decide

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
local tick, looked = (at - at % X) / X, (last - last % X) / X

-- If a log that owes had more than R entries when it was written, those behind the first R take the places of those that expire: the n-th begins to
-- count when the one R places before it expires.
local base, indebted = dead, owes and size - dead > R
local function began(n)
	local k = n - base
	return looked + 1 - (looked + 1 - entry(base + k % R)) % 4294967296 + (k - k % R) / R * Y
end
if not indebted and tick - looked > Y then dead = size end

local function expired(n)
	if indebted then return tick + 1 - began(n) > Y end
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
	if live + added > most then
		if owes then added = math.max(most - live, 0) else dead = dead + live + added - most end
	end
end

local function expiry(n)
	local k = n - dead
	if owes and k >= R then return expiry(dead + k % R) + (k - k % R) / R * Y * X end
	if n < size and indebted then return (began(n) + Y) * X - now end
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
	if indebted then
		local entries = {}
		for n = dead, size - 1 do entries[n - dead + 1] = pack('<I4', began(n) % 4294967296) end
		value = pack('<I7I4', at, 0) .. record .. table.concat(entries) .. value
	elseif not long then
		value = pack('<I7I4', at, 0) .. record .. string.sub(v, head + 1 + 4 * dead, head + 4 * size) .. value
	elseif dead * 2 > size then
		value = pack('<I7I4', at, 0) .. record .. call('GETRANGE', key, head + 4 * dead, -1) .. value
	else
		header = pack('<I7I4', at, dead)
	end
end
--#end

--#part evaluate
--#put .decide

logLive, expiryOf = size - dead, function(i) return expiry(dead + i) end
--#end

--#part refund

	local newest, length = pack('<I4', (charged + (-charged) % X) / X % 4294967296), #v
	local first, charge, head = length - 4 * cost, string.rep(newest, cost), length % 4 == 2 and 30 or 11
	while first >= head and length - first <= 4 * cost + 4096 do
		if string.sub(v, first + 1, first + 4 * cost) == charge then
			value = string.sub(v, 1, first) .. string.sub(v, first + 4 * cost + 1)
			break
		end
		first = first - 4
	end
--#end

-- Brings the log in Redis, and v, to the present, and gives it room for what leases hold.
--#part settle

do
	if type(v) ~= 'string' then v = '' end
	local till, span, lent, owing, due, last, head, bytes = now + length, length, 0, 0, 0, now, 0, #v
	if bytes == longest then bytes = call('STRLEN', key) end
	if bytes >= 11 then
		head, last = bytes % 4 == 2 and 30 or 11, unpack('<I7', v)
		if head == 30 then
			local turn, epoch, present, before = unpack('<I7I4I4I4', v, 12)
			if turn > now + epoch then turn = now + epoch end
			while present + before > 0 and now >= turn do
				if now < turn + (Y + 1) * X then due = due + before end
				before, present, turn = present, 0, turn + epoch
			end
			if present + before > 0 then till, span, lent, owing = turn, epoch, present, before end
		end
		if last > now + P or now > last + (Y + 1) * X then head, last = 0, now end -- no entry counts any more
	end
	if size > 0 and mark == till then
		lent = math.max(lent - size, 0)
	elseif size > 0 and mark == till - span then
		owing = math.max(owing - size, 0)
	elseif spent < 0 and head > 0 then -- the oldest that were charged since, unless some may have expired
		local _, from = unpack('<I7I4', v)
		local log, tick = call('GET', key), (mark - 1000000 + (1000000 - mark) % X) / X
		local to = (bytes - head) / 4
		if (now - now % X) / X + 1 - tick > Y then from = to end
		while from < to do
			local middle = (from + to - (from + to) % 2) / 2
			if (unpack('<I4', log, head + 1 + 4 * middle) - tick) % 4294967296 < 2147483648 then to = middle else from = middle + 1 end
		end
		call('SET', key, string.sub(log, 1, head + 4 * from) .. string.sub(log, head + 1 + 4 * (from - spent)), 'KEEPTTL')
		spent, kept = 0, 0
	else -- it has been charged already
		spent, kept = 0, 0
	end
	mark, due = till, due + spent
	local record = pack('<I7I4I4I4', till, span, lent + kept, owing)
	if head == 30 then
		call('SETRANGE', key, 11, record)
	elseif head == 11 then
		local log = call('GET', key)
		call('SET', key, string.sub(log, 1, 11) .. record .. string.sub(log, 12), 'KEEPTTL')
	else
		call('PSETEX', key, format('%d', (2 * span + P) / 1000 + 1), pack('<I7I4', now, 0) .. record)
	end
	if due > 0 then
		local at = math.max(last, now)
		call('APPEND', key, string.rep(pack('<I4', (at + (-at) % X) / X % 4294967296), due))
		call('SETRANGE', key, 0, pack('<I7', at))
	end
	v = call('GETRANGE', key, 0, longest - 1)
end
--#end

--#part window

local till, span, lent, owing = unpack('<I7I4I4I4', v, 12)
here, ends = till, till + span
--#end

for pass = 1, 2 do
--#part lend

remaining = remaining - extra
if held + extra > 0 then reset = math.max(reset, ends + (Y + 1) * X - now) end
local holding = pack('<I7I4I4I4', till, span, lent + extra, owing)
if value and not header then
	value = string.sub(value, 1, 11) .. holding .. string.sub(value, 12 + #record)
else
	call('SETRANGE', key, 11, holding)
	if not value then call('PEXPIRE', key, format('%d', (reset + (-reset) % 1000) / 1000 + 1)) end
end
break
--#end
end

--#part credit

	local head = #v % 4 == 2 and 30 or 11
	if #v < head then return {} end
	local _, dead = unpack('<I7I4', v)
	value = string.sub(v, 1, math.max(#v - 4 * cost, math.min(head + 4 * dead, #v)))
--#end
