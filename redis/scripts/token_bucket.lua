-- core/rate's decideTokenBucket.

--#part most
	if cost > X then wait = -1 end
--#end

--#part decide
--#put bucket.unpack
--#put bucket.held
--#put token_bucket.take
--#end

--#part evaluate
--#put bucket.unpack
--#put token_bucket.lent
--#put bucket.held
--#put token_bucket.take
--#end

--#part lent

-- Adds what was lent. While there is tolerance, the wide limit charges the bucket. The rule's own limit decides by what the bucket would have
-- without tolerance.
if v and (#v == 17 or #v == 36) and at == owedAt then
	used, frac = used + owed, frac + owedFrac
	if frac >= P then used, frac = used + 1, frac - P end
	if used >= 1000000001 then used, frac = 1000000001, 0 end
end
--#end

--#part take

-- token_bucket: X is the capacity; Y is 1 with refill interval.
local interval = Y == 1
--#put bucket.drain

used = used + held
local room = X - used
if frac > 0 then room = room - 1 end
ok = cost <= room
if ok then
	if denied then cost = 0 end
	used, room = used + cost, room - cost
	if cost > 0 then value = pack('<I7I4I6', at, used - held, frac) .. tail end
else
	stays = true
	if counts then
		if counts == 'whole' then
			used = used + cost
			if used >= 1000000001 then used, frac = 1000000001, 0 end
		elseif used < X then
			used, frac = X, 0
		end
		value, room = pack('<I7I4I6', at, used - held, frac) .. tail, 0
	end
	wait = -1
	if cost <= X then
		local units, span = used + cost - X
--#put bucket.span
		wait = span
	end
end
if room > 0 then remaining = room end
if used > 0 or frac > 0 then
	local units, span = used
--#put bucket.span
	reset = span
	if ok or cost == 0 then
		units = used + remaining + 1 - X
--#put bucket.span
		more = span
	end
end
if held > 0 then reset = reset + till + span - now end
--#end

--#part refund

local interval = Y == 1
--#put bucket.refund
--#end

-- Makes of v the state of a bucket with what leases hold, at present.
--#part settle

do
--#put bucket.unpack
--#put bucket.held

local interval = Y == 1
--#put bucket.drain

if interval then
	if keeps == 0 and mark == at - at % P then used = math.max(used - (size - spent), 0) end
	v = pack('<I7I4I6', at, used, frac)
else
	if held == 0 then till, span = now + length, length end
	if size > 0 and mark == till then
		lent = math.max(lent - size, 0)
	elseif size > 0 and mark == till - span then
		owing = math.max(owing - size, 0)
	elseif spent < 0 then -- what may have drained since they were charged is not given back
		local drained, rest = divide(math.max(now - mark + 1000000, 0), R, P)
		spent = math.min(spent + drained + math.min(rest, 1), 0)
	else -- it has been charged already
		spent, kept = 0, 0
	end
	mark = till
	used = math.max(math.min(used + spent, 1000000001), 0)
	v = pack('<I7I4I6', at, used, frac) .. pack('<I7I4I4I4', till, span, lent + kept, owing)
end
end
--#end

--#part window

if interval then
	here = at - at % P
	ends = here + P
else
	here, ends = till, till + span
end
--#end

for pass = 1, 2 do
--#part lend

if interval then
--#put lease.charge
else
	remaining, reset = remaining - extra, reset + divide(extra, P, R) + 1 + ends - now
	value = pack('<I7I4I6', at, used - held, frac)
	if held + extra > 0 then value = value .. pack('<I7I4I4I4', till, span, lent + extra, owing) end
	break
end
--#end
end

--#part credit
--#put bucket.credit
--#end
