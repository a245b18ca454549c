package redis

// luaLeaseBegin begins the script by which a node takes, extends and gives back leases. A lease is a number of units that the node may spend on its own
// until the lease ends. Package core has the node's part, and says why no more is ever admitted than the limit allows.
//
// Fixed windows, sliding window counters and buckets that are refilled at intervals are charged when units are lent, and a lease ends with the window: for
// as long as it lasts, it makes no difference when in the window a unit was spent. A log, and a bucket that is refilled continuously, forget units as
// time passes since they were charged. They are charged when the node says that it has spent the units. Until then they hold them: see luaHeldOfBucket.
const luaLeaseBegin = `
-- Each key has two: that of the limit's state, and that of the nodes' demand. Each key's part of the argument has, before its rule's: the mark of the node's
-- lease; its size; how much of it is spent; 1 if the node keeps the rest; how many units it wants in addition; its demand; what it has said of its demand in
-- which epoch; and how long a lease lasts. The cost may be 0.
--
-- The reply has eight numbers for each key: those of a decision on a request of that cost; the units of the lease; how long it lasts from now; its mark; and
-- the epoch of the demand.
local argument, place = ARGV[1], 1

-- portion returns how many units of room to lend to a node, and the epoch of its demand. It divides half of the room among the nodes by their demand. The
-- last units go to whoever comes first.
local function portion(demands, room, want, demand, told, toldIn, length)
	local epoch = real - real % length
	local v, sum, before = pcall('GET', demands), 0, 0
	if type(v) == 'string' and #v == 15 then
		local at, present, last = unpack('<I7I4I4', v)
		if at == epoch then sum, before = present, last elseif at == epoch - length then before = present end
	end
	if toldIn ~= epoch then told = 0 end
	sum = math.min(sum + math.max(demand - told, 0), 4294967295)
	call('PSETEX', demands, format('%d', length / 500 + 1), pack('<I7I4I4', epoch, sum, before))
	local units = math.floor(math.min(want, room / 2 * math.min(1, demand / math.max(sum, before, 1))))
	if units < 4 then units = room >= 8 and math.min(want, 4) or 0 end
	return units, epoch
end

local function lend(key, demands)
local mark, size, spent, keeps, want, demand, told, toldIn, length, position = unpack('<ddddddddd', argument, place)
local kept, extra, denied, here, ends = keeps * (size - spent), 0, false, 0, 0
`

// luaLeaseDecide decides at a cost, and lends. If the algorithm charges what it lends, it decides again, at the cost with the units that are lent.
func luaLeaseDecide(a *algorithm) string {
	if a.lease.lend == "" {
		return ""
	}
	return a.read + luaBlock + "\tkept, ok = 0, cost == 0\n\tif cost > " + a.most + " then wait = -1 end\nelse\n" + a.lease.settle + `
local arguments = position
for pass = 1, 2 do
position = arguments
` + a.decide + a.lease.window + `
if pass == 2 then break end
if here ~= mark then kept = 0 end
local room = ok and remaining or 0
if want > 0 then extra, toldIn = portion(demands, room, want, demand, told, toldIn, length) end
` + a.lease.lend + "\nend\nend\n"
}

// luaLendCharged charges what is lent.
const luaLendCharged = `
if extra == 0 then
	value = value or v
	break
end
ok, remaining, wait, reset, more, value, stays = false, 0, 0, 0, 0, nil, nil
cost = cost + extra`

// luaLeaseEnd ends the function lend, and calls it for each key.
const luaLeaseEnd = `
place = position
if value then
` + luaKeep + `
end
local units = kept + extra
if not ok then remaining = -1 - remaining end
return remaining, wait, reset, more, units, units > 0 and math.min(length, ends - now) or 0, here, toldIn
end
local reply, n = {}, #KEYS / 2
for i = 1, n do
	local decision = {lend(KEYS[2 * i - 1], KEYS[2 * i])}
	if type(decision[1]) == 'table' then return decision[1] end -- such a key comes alone
	for j = 1, 8 do reply[8 * i - 8 + j] = decision[j] or 0 end
end
return reply
`

const luaSettleFixedWindow = `
if v and #v == 11 and keeps == 0 then
	local start, count = unpack('<I7I4', v)
	if start == mark then v = pack('<I7I4', start, math.max(count - (size - spent), 0)) end
end
`

const luaWindowOfFixedWindow = `
here, ends = from, to
`

const luaSettleSlidingWindowCounter = `
if v and #v == 15 and keeps == 0 then
	local start, previous, current = unpack('<I7I4I4', v)
	if start == mark then
		current = math.max(current - (size - spent), 0)
	elseif start == mark + P then
		previous = math.max(previous - (size - spent), 0)
	end
	v = pack('<I7I4I4', start, previous, current)
end
`

const luaWindowOfSlidingWindowCounter = `
here, ends = from, from + P
`

// luaSettleBucket makes of v the state of a bucket with what leases hold, at present.
const luaSettleBucket = `
do
` + luaUnpackBucket + luaHeldOfBucket + luaIntervals + luaDrain + `
if interval then
	if keeps == 0 and mark == at - at % P then used = math.max(used - (size - spent), 0) end
	v = pack('<I7I4I6', at, used, frac)
else
	if held == 0 then till, span = now + length, length end
	if size > 0 and mark == till then
		lent = math.max(lent - size, 0)
	elseif size > 0 and mark == till - span then
		owing = math.max(owing - size, 0)
	else -- it has been charged already
		spent, kept = 0, 0
	end
	mark = till
	used = math.min(used + spent, 1000000001)
	v = pack('<I7I4I6', at, used, frac) .. pack('<I7I4I4I4', till, span, lent + kept, owing)
end
end
`

const luaWindowOfBucket = `
if interval then
	here = at - at % P
	ends = here + P
else
	here, ends = till, till + span
end
`

const luaLendBucket = `
if interval then` + luaLendCharged + `
else
	remaining, reset = remaining - extra, reset + divide(extra, P, R) + 1 + ends - now
	value = pack('<I7I4I6', at, used - held, frac)
	if held + extra > 0 then value = value .. pack('<I7I4I4I4', till, span, lent + extra, owing) end
	break
end`

// luaSettleLog brings the log in Redis, and v, to the present, and gives it room for what leases hold.
const luaSettleLog = `
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
`

const luaWindowOfLog = `
local till, span, lent, owing = unpack('<I7I4I4I4', v, 12)
here, ends = till, till + span
`

const luaLendLog = `
remaining = remaining - extra
if held + extra > 0 then reset = math.max(reset, ends + (Y + 1) * X - now) end
local holding = pack('<I7I4I4I4', till, span, lent + extra, owing)
if value and not header then
	value = string.sub(value, 1, 11) .. holding .. string.sub(value, 12 + #record)
else
	call('SETRANGE', key, 11, holding)
	if not value then call('PEXPIRE', key, format('%d', (reset + (-reset) % 1000) / 1000 + 1)) end
end
break`
