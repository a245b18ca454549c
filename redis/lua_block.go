package redis

const luaRead = `
-- A value of another type is overwritten, as if nothing were there. What else goes wrong ends the script: a rule that cannot read would admit
-- everything.
local v = pcall('GET', key)
if v and v.err and not string.find(v.err, 'WRONGTYPE', 1, true) then v = call('GET', key) end
`

// luaBlock is core's decideBlocked. What the key's algorithm says of others follows it.
const luaBlock = `
-- A key that is shut out by hand has in place of its state 14 bytes, which no state has: when that was, and the end, with which it expires.
-- Where the clock has stepped back, the end steps back with it.
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
	if X == 0 and Y == 1 then position = position + 40 end -- behind the calendar's windows, which nobody has read
`

// luaBlockEnd shuts a key out for ARGV[2] microseconds, or lets it in. Of a key without an account it needs no more than the commands
// that decisions do of rules that only reject; to delete it has it expire.
const luaBlockEnd = luaCheck + `
local span = tonumber(ARGV[2])
c.shutUntil = 0
if span > 0 then
	c.lent, c.lentFrac = 0, 0
	if real < c.quietUntil then c.quietUntil = math.max(c.quietUntil, real + span + c.longest) end
	if c.units > 0 then -- of which those are not charged that depart before the end
		local before = '(' .. format('%.0f', real + span)
		for _, member in ipairs(call('ZRANGEBYSCORE', c.pending, '-inf', before)) do c.units = c.units - costOf(member) end
		call('ZREMRANGEBYSCORE', c.pending, '-inf', before)
	end
	call('PSETEX', c.key, format('%d', (span + (-span) % 1000) / 1000 + 1), pack('<I7I7', real, real + span))
	call('PEXPIRE', c.line, 0) -- the states in it are not the key's any more
else
	c.quietUntil, c.offences = 0, 0
	if isShutState(c) then call('PEXPIRE', c.key, 0) end
end
c.dirty = c.dirty or c.there
save(c)
return {0, 0}
`

// luaResetEnd forgets of a key all but what requests under way hold.
const luaResetEnd = luaCheck + `
c.softUntil, c.softAgain, c.shutUntil, c.quietUntil, c.offences, c.loanR, c.lent, c.lentFrac = 0, 0, 0, 0, 0, 0, 0, 0
call('PEXPIRE', c.key, 0)
call('PEXPIRE', c.line, 0)
c.dirty = c.dirty or c.there
save(c)
return {0, 0}
`
