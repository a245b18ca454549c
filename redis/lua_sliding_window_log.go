package redis

const luaReadLog = `
-- longest is how many bytes of a log are read at once.
local longest = 11 + 4 * 192
local v = pcall('GETRANGE', key, 0, longest - 1)
if v.err and not string.find(v.err, 'WRONGTYPE', 1, true) then v = call('GETRANGE', key, 0, longest - 1) end
`

// luaSlidingWindowLog is core's decideLog.
const luaSlidingWindowLog = `
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
`

const luaEntries = `
logLive, expiryOf = size - dead, function(i) return expiry(dead + i) end
`

const luaRefundLog = `
	local newest, length = pack('<I4', (charged + (-charged) % X) / X % 4294967296), #v
	local first, charge, head = length - 4 * cost, string.rep(newest, cost), length % 4 == 2 and 30 or 11
	while first >= head and length - first <= 4 * cost + 4096 do
		if string.sub(v, first + 1, first + 4 * cost) == charge then
			value = string.sub(v, 1, first) .. string.sub(v, first + 4 * cost + 1)
			break
		end
		first = first - 4
	end
`
