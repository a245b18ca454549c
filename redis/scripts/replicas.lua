-- By this script nodes synchronise the replicas of rules with consistency eventual: see replicas. Package core's Replica has the node's part.

-- Decides or charges.
--
-- The algorithm's parts: late charges units to the window before the present one; state sets one, two and three to the state that is left: see
-- core's ReplicaState.
--#part decide
--#put .read
--#put decision.block
if left > 0 then
	wait, reset = left, left
	if X == 0 and Y == 1 then position = position + 40 end -- skips the calendar's windows
else
--#put .late
if decides == 0 then counts = 'whole' end
--#put .decide
--#put .state
end
--#end

--#part
--#put decision.begin

-- Each key's part of the argument has, before its rule's: the units to charge to the window before the present one; and 1 if the cost is
-- that of a request, to be decided as usual, or 0 if it is what a node has admitted, to be charged whatever the limit says.
--
-- The reply has eight numbers for each key: those of a decision on a request of that cost; for how much longer the key is blocked by hand; and the state
-- that is left: see core's ReplicaState. At its end is the server's time.
local argument, place = ARGV[1], 1

local function charge(key)
local late, decides, position = unpack('<dd', argument, place)
local denied, one, two, three = false, 0, 0, 0
--#put decision.rule
--#some replicas.decide

place = position
if value and (cost > 0 or late > 0) then
--#put decision.keep
elseif stays then
--#put decision.stay
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
--#end
