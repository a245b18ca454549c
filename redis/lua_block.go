package redis

const luaRead = `
-- A value of another type counts as none, and is overwritten. Any other error ends the script: a rule that cannot read would admit everything.
local v = pcall('GET', key)
if v and v.err and not string.find(v.err, 'WRONGTYPE', 1, true) then v = call('GET', key) end
`

// luaBlock is core's decideBlocked. The algorithm's Lua for keys that are not blocked follows it.
const luaBlock = `
-- A key that is blocked by hand has 14 bytes in place of its state, a length that no state has: when the block began, and when it ends. The
-- key expires with it. If the clock has stepped back, the end steps back as far.
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
	if X == 0 and Y == 1 then position = position + 40 end -- skips the calendar's windows
`

// luaBlockEnd blocks a key for ARGV[2] microseconds; 0 unblocks it. For a key without an account it needs only the commands that decisions
// of rules without an overflow policy need. Therefore it deletes by PEXPIRE.
const luaBlockEnd = luaCheck + `
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
`

// luaResetEnd resets a key: it forgets everything except the reservations of requests under way.
const luaResetEnd = luaCheck + `
c.softUntil, c.softAgain, c.blockedUntil, c.quietUntil, c.offences, c.loanR, c.lent, c.lentFrac = 0, 0, 0, 0, 0, 0, 0, 0
call('PEXPIRE', c.key, 0)
call('PEXPIRE', c.line, 0)
c.dirty = c.dirty or c.there
save(c)
return {0, 0}
`
