-- By this script a node takes, extends and gives back leases: see lessee. A lease is a number of units that the node may spend on its own until
-- the lease ends. Package core has the node's part, and says why no more is ever admitted than the limit allows.
--
-- Fixed windows, sliding window counters and buckets that are refilled at intervals are charged when units are lent, and a lease ends with the
-- window: for as long as it lasts, it makes no difference when in the window a unit was spent. A log, and a bucket that is refilled continuously,
-- forget units as time passes since they were charged. They are charged when the node says that it has spent the units. Until then they hold
-- them: see bucket.held.

-- Decides at a cost, and lends. If the algorithm charges what it lends, it decides again, at the cost with the units that are lent.
--
-- The algorithm's parts: settle takes account in v of what the node has spent and gives back; window sets here, the mark of leases that are taken
-- now, and ends, when they must have ended; lend lends extra units.
--#part decide
--#put .read
--#put decision.block
if left > 0 then
	wait, reset = left, left
	if X == 0 and Y == 1 then position = position + 40 end -- skips the calendar's windows
	kept, ok = 0, cost == 0
--#put .most
else
--#put .settle

local arguments = position
for pass = 1, 2 do
position = arguments
--#put .decide
--#put .window

if pass == 2 then break end
if here ~= mark then kept = 0 end
local room = ok and remaining or 0
if settles == 1 then room = math.max(room - reservedUnder(KEYS[keys - 2], KEYS[keys - 1]), 0) end
if want > 0 then extra, toldIn = portion(demands, room, want, demand, told, toldIn, length) end
--#put .lend
end
end
--#end

-- Charges what is lent: lend of the algorithms that do.
for pass = 1, 2 do
--#part charge
if extra == 0 then
	value = value or v
	break
end
ok, remaining, wait, reset, more, value, stays = false, 0, 0, 0, 0, nil, nil
cost = cost + extra
--#end
end

--#part
--#put decision.begin
--#put accounts.ours
--#put accounts.reserved

-- Each key has two: that of the limit's state, and that of the nodes' demand. Where requests are charged when their responses have ended, two more follow: those
-- of the reservations of requests on which Redis has decided. Each key's part of the argument has, before its rule's: the mark of the node's
-- lease; its size; how much of it is spent; 1 if the node keeps the rest; how many units it wants in addition; its demand; what it has said of its demand in
-- which epoch; how long a lease lasts; and 1 if there are the two more keys. The cost may be 0.
--
-- If less than 0 is spent, so many units that were said to be spent, of a lease with that mark, are given back.
--
-- The reply has eight numbers for each key: those of a decision on a request of that cost; the units of the lease; how long it lasts from now; its mark; and
-- the epoch of the demand.
local argument, place, keys = ARGV[1], 1, 1

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
local mark, size, spent, keeps, want, demand, told, toldIn, length, settles, position = unpack('<dddddddddd', argument, place)
keys = keys + 2 + 2 * settles
local kept, extra, denied, here, ends = keeps * (size - spent), 0, false, 0, 0
--#put decision.rule
--#some lease.decide

place = position
if value then
	local reset = reset
	if owes and X == 0 and Y == 1 then reset = reset + 172800000000 end -- as accounts.lua's keep
--#put decision.keep
end
local units = kept + extra
if not ok then remaining = -1 - remaining end
return remaining, wait, reset, more, units, units > 0 and math.min(length, ends - now) or 0, here, toldIn
end
local reply = {}
while keys <= #KEYS do
	local decision = {lend(KEYS[keys], KEYS[keys + 1])}
	if type(decision[1]) == 'table' then return decision[1] end -- such a key comes alone
	for j = 1, 8 do reply[#reply + 1] = decision[j] or 0 end
end
return reply
--#end
