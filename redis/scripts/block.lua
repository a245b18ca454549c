-- Blocks a key for ARGV[2] microseconds; 0 unblocks it. For a key without an account it needs only the commands that decisions of rules
-- without an overflow policy need. Therefore it deletes by PEXPIRE.

--#part
--#put accounts
--#put accounts.check

local span = tonumber(ARGV[2])
c.blockedUntil = 0
if span > 0 then
	c.lent, c.lentFrac = 0, 0
	if real < c.quietUntil then c.quietUntil = math.max(c.quietUntil, real + span + c.longest) end
	if c.units > 0 then -- requests that depart before the end are not charged
		local before = '(' .. format('%.0f', real + span)
		for _, member in ipairs(call('ZRANGEBYSCORE', c.pending, '-inf', before)) do c.units = c.units - costOf(member) end
		call('ZREMRANGEBYSCORE', c.pending, '-inf', before)
	end
	call('PSETEX', c.key, format('%d', (span + (-span) % 1000) / 1000 + 1), pack('<I7I7', real, real + span))
	call('PEXPIRE', c.line, 0) -- the states in it are no longer the key's
else
	c.quietUntil, c.offences = 0, 0
	if isBlockState(c) then call('PEXPIRE', c.key, 0) end
end
c.dirty = c.dirty or c.there
save(c)
return {0, 0}
--#end
