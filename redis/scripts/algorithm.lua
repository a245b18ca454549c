-- The file of an algorithm has these parts, and may leave out those that stand here:
--
-- read: reads the key's value into v.
-- most: rejects for good a request that costs more than any may.
-- decide: decides by the state in v. rule in decision.lua says which variables it reads and sets.
-- evaluate: as decide, in scripts of rules with an overflow policy.
-- refund: sets value to the state in v without a charge of that cost, made at the time charged.
-- credit: sets value to the state in v without cost of its units, the newest first.
-- settle, window, lend: see lease.lua. Only an algorithm with a queue may lack them, and has no leases then.

--#part read

-- A value of another type counts as none, and is overwritten. Any other error ends the script: a rule that cannot read would admit everything.
local v = pcall('GET', key)
if v and v.err and not string.find(v.err, 'WRONGTYPE', 1, true) then v = call('GET', key) end
--#end

--#part evaluate
--#put .decide
--#end
