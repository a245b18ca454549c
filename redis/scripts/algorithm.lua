-- The parts that the file of an algorithm may leave out.

--#part read

-- A value of another type counts as none, and is overwritten. Any other error ends the script: a rule that cannot read would admit everything.
local v = pcall('GET', key)
if v and v.err and not string.find(v.err, 'WRONGTYPE', 1, true) then v = call('GET', key) end
--#end

-- Decides in scripts of rules with an overflow policy.
--#part evaluate
--#put .decide
--#end

-- Charges units to the window before the present one, in the script of replicas.
--#part late
--#end
