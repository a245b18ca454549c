-- What the scripts of rules with an overflow policy share. They are core/memory's account.go, memory_accounts.go and memory_weighing.go in Lua, mostly
-- with the same names. The algorithms are a function, evaluate, since it decides at times and costs other than the request's, too.

-- Reads a key and decides, for each algorithm.
--#part evaluate
--#put .read
--#put decision.block
if left > 0 then
	wait, reset = left, left
	if X == 0 and Y == 1 then position = position + 40 end -- skips the calendar's windows
--#put .most
else
--#put .evaluate
end
--#end

--#part ours

-- ours runs a command on a set or list. If the key has another type, it first deletes the key. Scripts use it wherever they may be the first
-- to use the key.
local function ours(command, key, ...)
	local v = pcall(command, key, ...)
	if type(v) == 'table' and v.err then
		if not string.find(v.err, 'WRONGTYPE', 1, true) then error("of the '" .. command .. "' command: " .. v.err) end
		call('DEL', key)
		v = call(command, key, ...)
	end
	return v
end
--#end

--#part reserved

-- costOf returns the cost in a member; 0 if we have not written the member.
local function costOf(member)
	if #member ~= 16 then return 0 end
	return (unpack('<d', member, 9))
end

-- reservedUnder returns the sum of the reservations of one unit, and of more units.
local function reservedUnder(reservations, larger)
	ours('ZREMRANGEBYSCORE', reservations, '-inf', format('%.0f', real))
	local held = call('ZCARD', reservations)
	if not larger then return held end
	ours('ZREMRANGEBYSCORE', larger, '-inf', format('%.0f', real))
	for _, member in ipairs(call('ZRANGE', larger, 0, -1)) do held = held + costOf(member) end
	return held
end
--#end

-- What begins the script of a single check.
--#part check

local c = checks[1]
load(c)
if redirected then return {real} end
--#end

--#part
--#put decision.begin

-- Each check has six keys:
--
-- key: the state of its limit.
-- account: its account.
-- reservations, larger: the reservations of requests under way, of one unit and of more: sorted sets, by when they expire.
-- pending: the charges to come, a sorted set by when they are due.
-- line: the queue of requests that wait, a list.
--
-- A member of the sets has a ticket of eight bytes, and the cost.
--
-- Each check's part of the argument has, after its rule's: its kind, in bits (1: in flight, 2: counts by status, 4: soft, 8: delays,
-- 16: candidate, 32: a bucket, 64: a bucket in which requests queue, 128: a log); requests and capacity of the wide limit; how long tolerance
-- lasts; how long the request may wait; how far the key's time may be ahead; how long a reservation lasts; the ticket; and the penalties.
--
-- The keys after the first may follow ARGV[2] instead: see runMoving.
local argument, place = ARGV[1], 1
local keys = KEYS
if #keys == 1 then
	keys = {KEYS[1]}
	for i = 3, #ARGV do keys[i - 1] = ARGV[i] end
end
local n = #keys / 6
local checks = {}
for i = 1, n do
	local c, kind, penalties = {}
	c.algorithm, c.counts, c.shadow, c.peek, c.cost, c.R, c.P, c.X, c.Y, place = unpack('<BBBBddddd', argument, place)
	if c.X == 0 and c.Y == 1 then c.windows, place = place, place + 40 end
	kind, c.wideR, c.wideX, c.softFor, c.patience, c.ahead, c.lease, c.ticket, penalties, place = unpack('<Bddddddc8B', argument, place)
	c.penalties, c.longest = {}, 0
	for j = 1, penalties do
		c.penalties[j], place = unpack('<d', argument, place)
		c.longest = math.max(c.longest, c.penalties[j])
	end
	c.inflight, c.count, c.isSoft, c.delays, c.candidate = kind % 2 >= 1, kind % 4 >= 2, kind % 8 >= 4, kind % 16 >= 8, kind % 32 >= 16
	c.isBucket, c.isQueue, c.isLog = kind % 64 >= 32, kind % 128 >= 64, kind >= 128
	c.key, c.account, c.reservations, c.larger, c.pending, c.line = keys[6 * i - 5], keys[6 * i - 4], keys[6 * i - 3], keys[6 * i - 2], keys[6 * i - 1], keys[6 * i]
	c.flags = 0
	checks[i] = c
end

-- read reads a value. If the key has another type it returns an error as a table, and the key will be overwritten. Any other error ends the
-- script.
local function read(command, key)
	local v = pcall(command, key)
	if type(v) == 'table' and v.err and not string.find(v.err, 'WRONGTYPE', 1, true) then error("of the '" .. command .. "' command: " .. v.err) end
	return v
end
--#put accounts.ours

local algorithm, key, cost, R, P, X, Y, counts, owes, denied, slack, position
local peek, redirected = 0, false
local ok, remaining, wait, reset, more, left, value, header, stays
local owed, owedFrac, owedAt -- what a bucket owes in addition to its state of that time
local logLive, expiryOf -- of a log: the number of its live entries, and when the i-th of them expires

-- evaluate lets the check's limit, or its wide limit, decide at a time and a cost. force is counts of a rule's argument: with true or 'whole'
-- a request over the limit is charged, too. If evaluate returns true it has decided nothing: the time lies in none of the calendar's windows
-- that were sent.
local function evaluate(c, at, units, wide, force)
	now, algorithm, key, cost, R, P, X, Y = at, c.algorithm, c.key, units, c.R, c.P, c.X, c.Y
	owedAt = nil
	if wide then R, X = c.wideR, c.wideX elseif c.isSoft then owed, owedFrac, owedAt = c.lent, c.lentFrac, c.lentAt end
	counts, owes, denied, slack, position = force, c.counts == 2, false, c.P + c.ahead, c.windows
	ok, remaining, wait, reset, more, left, value, header = false, 0, 0, 0, 0, 0, nil, nil
--#each accounts.evaluate

end

-- keep writes the value that was evaluated, which expires when it makes no difference any more. A bucket that the wide limit has charged
-- drains more slowly when tolerance ends.
local function keep(c)
	if not value then return end
	if c.isBucket and R ~= c.R then reset = math.ceil((reset + c.Y * c.P) * R / c.R) + 1 end
	reset = reset + now - real
	if c.windows and c.counts == 2 then reset = reset + 172800000000 end -- a month that is longer than usual does not forget what is owed
	if reset < 1000 then reset = 1000 end
	local key = c.key
--#put decision.keep
end

-- isBlockState returns whether the key has a block by hand in place of its state, even one that has ended: see luaBlock.
local function isBlockState(c) return read('STRLEN', c.key) == 14 end

-- lend notes the loan of a bucket that the wide limit charges: how much lower its level is, at that time, than with the rule's own limit alone.
-- If several limits count in one bucket, the wide limit may be the slower one; then nothing is lent.
local function lend(c, to)
	if c.loanR == 0 then c.loanR, c.loanX = c.wideR, c.wideX end
	local v, units, part, charged = read('GET', c.key), 0, 0, to
	if type(v) == 'string' and (#v == 17 or #v == 36) then
		local at, used, frac = unpack('<I7I4I6', v)
		for pass = 1, 2 do
			local R = c.wideR
			if pass == 2 then
				R = c.R
				if at == c.lentAt then used, frac = used + c.lent, frac + c.lentFrac end
				if frac >= c.P then used, frac = used + 1, frac - c.P end
				if used >= 1000000001 then used, frac = 1000000001, 0 end
			end
			local left, rest = used, frac
			if at > to then
				if at - to > c.P + c.ahead then left, rest = 0, 0 else charged = at end
			elseif c.Y == 1 then
				left = left - ((to - to % c.P) - (at - at % c.P)) / c.P * R
			else
				local whole, over = divide(to - at, R, c.P)
				left, rest = left - whole, rest - over
				if rest < 0 then left, rest = left - 1, rest + c.P end
			end
			if left < 0 then left, rest = 0, 0 end
			units, part = left - units, rest - part
			if part < 0 then units, part = units - 1, part + c.P end
		end
		if units < 0 then units, part = 0, 0 end
	end
	c.lent, c.lentFrac, c.lentAt, c.dirty = units, part, charged, true
end

-- payBack ends the loan: it adds what was lent to the bucket's state.
local function payBack(c)
	if c.lent > 0 or c.lentFrac > 0 then
		local v = read('GET', c.key)
		if type(v) == 'string' and (#v == 17 or #v == 36) then
			local at, used, frac = unpack('<I7I4I6', v)
			if at == c.lentAt then
				used, frac = used + c.lent, frac + c.lentFrac
				if frac >= c.P then used, frac = used + 1, frac - c.P end
				if used >= 1000000001 then used, frac = 1000000001, 0 end
				call('SET', c.key, pack('<I7I4I6', at, used, frac) .. string.sub(v, 18), 'KEEPTTL')
			end
		end
	end
	c.loanR, c.lent, c.lentFrac, c.dirty = 0, 0, 0, true
end

-- lasting makes a key expire after so many milliseconds. If the user has no permission for that, it undoes the last write by the given
-- command, since the value would stay forever, and ends the script.
local function lasting(key, life, ...)
	if type(pcall('PEXPIRE', key, life)) == 'table' then
		call(...)
		call('PEXPIRE', key, life) -- fails again, with the error that names the permission
	end
end

-- lastCharge returns when the last of the charges to come is due. If the user has no permission to read it, it takes the request's own charge
-- back, and ends the script.
local function lastCharge(c, own)
	local charge = pcall('ZREVRANGE', c.pending, 0, 0, 'WITHSCORES')
	if charge.err then
		call('ZREM', c.pending, own)
		call('ZREVRANGE', c.pending, 0, 0, 'WITHSCORES')
	end
	return tonumber(charge[2])
end

--#put accounts.reserved

-- load reads a check's account, and charges what is due.
local function load(c)
	local v = read('GET', c.account)
	c.softUntil, c.softAgain, c.blockedUntil, c.quietUntil, c.tail, c.units, c.offences = 0, 0, 0, 0, 0, 0, 0
	c.loanR, c.loanX, c.lent, c.lentFrac, c.lentAt = 0, 0, 0, 0, 0
	if type(v) == 'string' and (#v == 52 or #v == 77) then
		if #v == 77 then c.loanR, c.loanX, c.lent, c.lentFrac, c.lentAt = unpack('<I4I4I4I6I7', v, 53) end
		c.there = true
		local last
		last, c.softUntil, c.softAgain, c.blockedUntil, c.quietUntil, c.tail, c.units, c.offences = unpack('<I7I7I7I7I7I7I6I4', v)
		if last > real then -- the clock has stepped back: all times step back with it
			local back = last - real
			for _, member in ipairs(ours('ZRANGE', c.pending, 0, -1)) do call('ZINCRBY', c.pending, format('%.0f', -back), member) end
			call('DEL', c.line)
			for _, name in ipairs({'softUntil', 'softAgain', 'blockedUntil', 'quietUntil', 'tail'}) do
				c[name] = c[name] - back
				if c[name] < 0 then c[name] = 0 end
			end
			c.dirty = true
		end
	end
	if c.units > 0 then
		-- At most 500 at a time: the others stay reserved until the next call.
		local due = ours('ZRANGEBYSCORE', c.pending, '-inf', format('%.0f', real), 'WITHSCORES', 'LIMIT', 0, 500)
		local wideR, wideX = c.wideR, c.wideX
		c.wideR, c.wideX = c.loanR, c.loanX -- during tolerance, the limit that has begun it charges, whatever limit the check has
		for i = 1, #due, 2 do
			local units, at = costOf(due[i]), tonumber(due[i + 1])
			if c.loanR > 0 and at >= c.softUntil then payBack(c) end
			local wide = c.loanR > 0
			if wide and c.isBucket then lend(c, at) end
			if not evaluate(c, at, units, wide, 'whole') then
				keep(c)
				c.units = c.units - units
			end
		end
		c.wideR, c.wideX = wideR, wideX
		if #due > 0 then
			call('ZREMRANGEBYRANK', c.pending, 0, #due / 2 - 1)
			if not c.isLog then call('DEL', c.line) end
			c.dirty = true
		end
		if c.units > 0 and call('ZCARD', c.pending) == 0 then c.units, c.dirty = 0, true end
	end
	if c.loanR > 0 and real >= c.softUntil then payBack(c) end
	while c.delays do
		local first = ours('LINDEX', c.line, 0)
		if not first or #first >= 26 and unpack('<I7', first, 9) > real then break end
		call('LPOP', c.line)
	end
end

-- save writes a check's account, which expires when nothing in it counts any more. It makes the state last for the charges to come.
local function save(c)
	local last = math.max(c.softUntil, c.softAgain, c.blockedUntil, c.quietUntil, c.tail)
	if c.units > 0 then
		local own = c.ticket .. pack('<d', c.cost)
		local charge, span = lastCharge(c, own), 2 * c.P
		if c.isBucket then -- a higher limit may have admitted, and reserved, more
			local v, units = pcall('GET', c.key), c.X + c.units + c.lent + 1
			if type(v) == 'string' and (#v == 17 or #v == 36) then units = units + unpack('<I4', v, 8) end
			span = math.max(span, (divide(units, c.P, c.R)))
		end
		last = math.max(last, charge + span)
		lasting(c.pending, format('%d', (last - real) / 1000 + 1), 'ZREM', c.pending, own)
		if not isBlockState(c) then call('PEXPIRE', c.key, format('%d', (last - real) / 1000 + 1)) end
	end
	if c.lent > 0 or c.lentFrac > 0 then -- until all that the bucket owes has drained
		local v, units = read('GET', c.key), c.lent + 1
		local is = type(v) == 'string' and (#v == 17 or #v == 36)
		if is then units = units + 1 + unpack('<I4', v, 8) end
		last = math.max(last, math.min(real + (divide(units, c.P, c.R)) + c.Y * c.P, real + 3153600000000000))
		if is then call('PSETEX', c.key, format('%d', (last - real) / 1000 + 1), v) end
	end
	if not c.dirty then return end
	if last <= real then
		call('DEL', c.account)
		return
	end
	value = pack('<I7I7I7I7I7I7I6I4', real, c.softUntil, c.softAgain, c.blockedUntil, c.quietUntil, c.tail, c.units, c.offences)
	if c.loanR > 0 then value = value .. pack('<I4I4I4I6I7', c.loanR, c.loanX, c.lent, c.lentFrac, c.lentAt) end
	call('PSETEX', c.account, format('%d', (last - real) / 1000 + 1), value)
end

-- heldOf returns how many units requests under way have reserved.
local function heldOf(c)
	if not c.count and not c.inflight then return 0 end
	return reservedUnder(c.reservations, not c.inflight and c.larger)
end

-- heldUnder returns the set for a check's reservation, and its member there.
local function heldUnder(c)
	if c.inflight or c.cost == 1 then return c.reservations, c.ticket .. pack('<d', 1) end
	return c.larger, c.ticket .. pack('<d', c.cost)
end

local function reserve(c)
	c.flags = c.flags + 2
	if c.cost == 0 and not c.inflight then return end
	local key, member = heldUnder(c)
	call('ZADD', key, format('%.0f', real + c.lease), member)
	lasting(key, format('%d', c.lease / 1000 + 1000), 'ZREM', key, member)
end

local function take(c)
	c.ok, c.remaining, c.wait, c.reset, c.more = ok, remaining, wait, reset, more
end

-- blocked makes the decision reject, since the key is blocked for that long.
local function blocked(c, span)
	if c.ok then c.wait = 0 end
	c.ok, c.soft, c.remaining, c.more = false, false, 0, 0
	if c.wait ~= -1 and c.wait <= span then
		c.wait = span
		c.flags = c.flags + 4
	end
	if c.reset < span then c.reset = span end
end

local function firstDue(c)
	local first = call('ZRANGE', c.pending, 0, 0, 'WITHSCORES')
	return first[2] and tonumber(first[2]) or real
end

local function weighPlain(c, wide)
	c.wide = wide
	local cost = math.max(c.cost, 1) -- with a cost of 0 it passes if anything is left
	if evaluate(c, real, cost + c.reserved, wide) then return end
	if ok then
		if c.cost == 0 then evaluate(c, real, c.reserved, wide) end
		take(c)
		c.depart = real + wait
		return
	end
	take(c)
	if c.reserved == 0 then return end
	evaluate(c, real, cost, wide)
	take(c)
	if not ok then
		c.remaining = math.max(0, remaining - c.reserved)
		return
	end
	c.onlyReserved, c.ok, c.remaining, c.wait, c.more = true, false, 0, 1000000, 0
	if c.held == 0 and firstDue(c) > real then c.wait = firstDue(c) - real end
end

local function weighSoft(c)
	local begun = real < c.softUntil
	local there = begun or real >= c.softAgain
	weighPlain(c, false)
	c.hardWait = c.wait
	if c.onlyReserved then c.hardWait = -1 end
	if not there or c.ok and not begun then return end
	local hardOk, hardRemaining, hardWait, hardReset, hardMore, hardReserved = c.ok, c.remaining, c.wait, c.reset, c.more, c.onlyReserved
	c.onlyReserved = false
	weighPlain(c, true)
	if not c.ok and not begun then
		c.wide, c.onlyReserved = false, hardReserved
		c.ok, c.remaining, c.wait, c.reset, c.more = hardOk, hardRemaining, hardWait, hardReset, hardMore
		return
	end
	if not c.ok and real + c.wait >= c.softUntil then c.wait, c.reset = hardWait, hardReset end
	c.soft = c.ok and not hardOk
	c.begins = c.soft and not begun
	c.remaining, c.more = 0, 0
	if hardOk then c.remaining, c.more = hardRemaining, hardMore end
end

-- unitExpiry returns when the i-th of a log's pending units stops counting.
local function unitExpiry(c, i)
	local members
	if c.units == call('ZCARD', c.pending) then
		members, i = call('ZRANGE', c.pending, i, i, 'WITHSCORES'), 0
	else
		members = call('ZRANGE', c.pending, 0, -1, 'WITHSCORES')
	end
	for j = 1, #members, 2 do
		local units = costOf(members[j])
		local at = tonumber(members[j + 1])
		if i < units then return ((at + (-at) % c.X) / c.X + c.Y) * c.X end
		i = i - units
	end
	return real
end

-- weighBehind finds the departure of a request whose place in the queue is behind all charges to come. For that it writes the state after
-- those charges, and then restores the state.
local function weighBehind(c)
	local before = read('GET', c.key)
	c.depart = real
	local members = call('ZRANGE', c.pending, 0, -1, 'WITHSCORES')
	for i = 1, #members, 2 do
		c.depart = tonumber(members[i + 1])
		if evaluate(c, c.depart, costOf(members[i]), false, 'whole') then break end
		if value then call('SET', c.key, value, 'KEEPTTL') end
	end
	if not redirected then evaluate(c, c.depart, c.cost) end
	if type(before) == 'string' then call('SET', c.key, before, 'KEEPTTL') else call('DEL', c.key) end
	c.behind, c.ok, c.remaining, c.reset, c.wait, c.more = true, ok, remaining, reset + now - real, 0, 0
	if not ok and c.isQueue then
		c.wait = c.depart - real + wait
		return
	end
	c.depart = c.depart + wait
end

local function weighDelay(c)
	if c.isLog then
		if evaluate(c, real, 0) or left > 0 then return end
		take(c)
		local room = c.R - logLive - c.units - c.cost
		c.ok, c.remaining, c.wait = room >= 0, math.max(0, room), 0
		if not c.ok then
			c.wait, c.more = -1, 0
			if c.cost <= c.R then
				local unit = -room - 1
				if unit < logLive then c.wait = expiryOf(unit) else c.wait = unitExpiry(c, unit - logLive) - real end
			end
		end
	else
		if evaluate(c, real, c.cost + c.reserved) or left > 0 then return end
		take(c)
		local capacity = c.R
		if c.isBucket then capacity = c.X end
		if wait == -1 and c.cost <= capacity then
			if ours('ZCARD', c.pending) > 1000 then
				c.onlyReserved, c.wait = true, firstDue(c) - real
				return
			end
			weighBehind(c)
			if redirected then return end
		end
	end
	if c.wait == -1 or not c.ok and c.isQueue then return end
	if not c.behind then c.depart = real + c.wait end
	c.depart = math.max(c.depart, c.tail)
	local span = c.depart - real
	c.ok = span <= c.patience
	if c.ok then
		c.wait = span
		if span > 0 then c.remaining, c.more = 0, 0 end
		return
	end
	c.onlyReserved = c.patience == 0
	c.remaining, c.wait, c.more = 0, span - c.patience, 0
end

-- blockedByHand makes the decision reject, since evaluate has found that the key is blocked by hand.
local function blockedByHand(c)
	local most = c.R
	if c.inflight then most = 1000000000 elseif c.isBucket then most = c.X end
	c.isBlocked, c.ok, c.soft, c.remaining, c.wait, c.reset, c.more = true, false, false, 0, left, left, 0
	if c.cost > most then c.wait = -1 else c.flags = c.flags + 4 end
end

local function weigh(c)
	c.depart = real
	load(c)
	c.held = heldOf(c)
	if c.inflight then
		evaluate(c, real, c.cost)
		if left > 0 then return blockedByHand(c) end
		c.ok, c.remaining, c.wait, c.reset, c.more = c.held < c.R and c.cost <= 1000000000, 0, 0, 0, 0
		if c.ok then c.remaining = c.R - c.held - 1 elseif c.cost > 1000000000 then c.wait = -1 else c.wait = 1000000 end
		return
	end
	c.reserved = c.held + c.units
	if c.isSoft then weighSoft(c) elseif c.delays then weighDelay(c) else weighPlain(c, false) end
	if left > 0 then return blockedByHand(c) end
	if c.blockedUntil > real and #c.penalties > 0 then
		c.isBlocked = true
		blocked(c, c.blockedUntil - real)
	end
end

local function standWithout(c)
	if c.inflight then
		c.remaining = c.remaining + 1
		return
	end
	evaluate(c, real, 0)
	c.remaining, c.wait, c.reset, c.more = math.max(0, remaining - c.reserved), 0, reset, more
	if remaining < c.reserved then c.more = 0 end
end

-- exceed notes that a request has exceeded the limit. There is no new tolerance before everything that the last has let through has drained.
-- c.hardWait says when: it is the wait that the limit itself would demand (-1: unknown; then an earlier, longer wait stays).
local function exceed(c)
	if real >= c.softUntil and real >= c.softAgain then return end
	local again = real + math.max(c.P, c.hardWait)
	if c.hardWait ~= -1 or again > c.softAgain then c.softAgain = again end
	c.dirty = true
end

local function reject(c)
	if c.isBlocked or c.onlyReserved or c.inflight then return end
	if c.counts == 1 then
		evaluate(c, real, c.cost, c.wide, true)
		if not ok then
			take(c)
			if c.wide then c.remaining = 0 end
			keep(c)
		end
	end
	if c.isBucket then
		local key, reset = c.key, math.max(c.reset, c.wait)
--#put decision.stay
	end
	if c.wait == -1 then return end
	if c.isSoft then exceed(c) end
	if c.longest > 0 then -- else a former rule, whose rejections are no offences
		if real >= c.quietUntil then c.offences = 0 end
		c.offences = c.offences + 1
		c.blockedUntil = real + c.penalties[math.min(c.offences, #c.penalties)]
		c.quietUntil = c.blockedUntil + c.longest
		c.dirty = true
		blocked(c, c.blockedUntil - real)
		c.flags = c.flags + 8
	end
end

-- queue puts a request that waits at the end of the line. before and after are the states without it and with it.
local function queue(c, depart, before, after)
	ours('RPUSH', c.line, pack('<c8I7I7I4', c.ticket, depart, c.tail, #before) .. before .. after)
	lasting(c.line, format('%d', (depart - real) / 1000 + 1), 'RPOP', c.line)
	c.tail = depart
end

local function admit(c, depart)
	if c.inflight or c.count then
		reserve(c)
		return
	end
	if c.soft then
		if c.begins then c.softUntil, c.loanR, c.loanX = real + c.softFor, c.wideR, c.wideX end
		exceed(c)
	end
	local queues = c.delays and c.shadow == 0 -- nobody waits for a shadow, and so nobody leaves before the charge is due
	if depart > real and (c.depart < depart or c.isLog or c.behind) and (queues or not c.delays) then
		if c.delays and c.depart == depart then queue(c, depart, '', '') end
		ours('ZADD', c.pending, format('%.0f', depart), c.ticket .. pack('<d', c.cost))
		c.units, c.dirty, c.flags = c.units + c.cost, true, c.flags + 2
		c.reset, c.more = math.max(c.reset, depart - real + c.P), 0
		return
	end
	local at, before = depart, ''
	if c.isQueue then at = real end
	if depart > real and queues then before = read('GET', c.key) end
	if c.wide and c.isBucket then lend(c, at) end
	evaluate(c, at, c.cost, c.wide)
	c.reset = at - real + reset
	if depart > real then c.more = 0 elseif c.delays and c.isLog then c.more = more end
	keep(c)
	if c.soft and c.hardWait == -1 then -- such as for a request that costs more than the limit: the state after the charge tells the wait
		evaluate(c, at, 1, false)
		c.hardWait = wait
		exceed(c)
	end
	if depart > real and queues then
		if type(before) ~= 'string' then before = '' end
		queue(c, depart, before, value)
		c.dirty, c.flags = true, c.flags + 2
	elseif depart > real and c.delays then
		c.tail, c.dirty = depart, true
	end
end
--#end
