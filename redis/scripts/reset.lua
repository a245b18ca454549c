-- Resets a key: it forgets everything except the reservations of requests under way.

--#part
--#put accounts
--#put accounts.check

c.softUntil, c.softAgain, c.blockedUntil, c.quietUntil, c.offences, c.loanR, c.lent, c.lentFrac = 0, 0, 0, 0, 0, 0, 0, 0
call('PEXPIRE', c.key, 0)
call('PEXPIRE', c.line, 0)
c.dirty = c.dirty or c.there
save(c)
return {0, 0}
--#end
