-- core/rate's decideSlidingWindowSegments: sliding_window_counter with segments.

--#part most
	if cost > R then wait = -1 end
--#end

--#part decide

-- The state, in 15 + 4·N bytes: when the present segment began (7); how many units are in all segments but the oldest (4); and how many in each, the oldest
-- first (4 for each of N + 1). X is how long a segment lasts, and N segments are a window. They begin at Z, and at whole X before and after it. Y is
-- N + 64·Z.
local N = Y % 64
local Z = (Y - N) / 64
local start, newer, segments = 0, 0
if type(v) == 'string' and #v == 15 + 4 * N then
	start, newer = unpack('<I7I4', v)
	segments = string.sub(v, 12)
end
local at = now
if start > now then
	if start - now <= slack then at = start else segments = nil end
end
local into = (at - Z) % X
local from = at - into
local begun = (from - start) / X
if not segments or begun > N then
	newer, segments = 0, string.rep('\0', 4 * N + 4)
elseif begun > 0 then
	for i = 1, begun do newer = newer - unpack('<I4', segments, 4 * i + 1) end
	segments = string.sub(segments, 4 * begun + 1) .. string.rep('\0', 4 * begun)
end
local oldest, present, added = unpack('<I4', segments), (unpack('<I4', segments, 4 * N + 1)), 0
local weighted = divide(oldest, X - into, X)
ok = cost <= R - weighted - newer
if ok then
	if not denied then added = cost end
elseif counts then
	added = math.min(cost, 2147483647 - newer)
end

-- leaves returns in how many microseconds the i-th of the segments, with that count, weighs no more than room.
local function leaves(i, count, room)
	local wait = at - now - into + i * X
	if count > room then
		local overlap, over = divide(room + 1, X, count)
		if over == 0 then overlap = overlap - 1 end
		wait = wait + X - overlap
	end
	return wait
end

-- free returns in how many microseconds so many units are free that are not free now.
local function free(units)
	local room, rest, count, i = R - units, newer + added, oldest, 0
	while rest > room do
		i = i + 1
		count = i == N and present + added or unpack('<I4', segments, 4 * i + 1)
		rest = rest - count
	end
	return leaves(i, count, room - rest)
end

if not ok then wait = cost <= R and free(cost) or -1 end
remaining = R - weighted - newer - added
if remaining < R then
	local i, count = N, present + added
	while count == 0 and i > 0 do
		i = i - 1
		count = unpack('<I4', segments, 4 * i + 1)
	end
	reset = leaves(i, count, 0)
end
if remaining < 0 then remaining = 0 end
if (ok or cost == 0) and remaining < R then more = free(remaining + 1) end
if ok and not denied or counts and not ok then
	value = pack('<I7I4', from, newer + added) .. string.sub(segments, 1, 4 * N) .. pack('<I4', present + added)
end
--#end

--#part without

-- without returns a state without units that were charged at a time.
local function without(state, time, units)
	local start, newer = unpack('<I7I4', state)
	local N = Y % 64
	local i = N - (start - time + (time - (Y - N) / 64) % X) / X
	if #state ~= 15 + 4 * N or i < 0 or i > N then return state end
	local count = unpack('<I4', state, 12 + 4 * i)
	units = math.min(units, count)
	if i > 0 then newer = newer - units end
	return pack('<I7I4', start, newer) .. string.sub(state, 12, 11 + 4 * i) .. pack('<I4', count - units) .. string.sub(state, 16 + 4 * i)
end
--#end

--#part refund

--#put sliding_window_segments.without
	if #v >= 11 then value = without(v, charged, cost) end
--#end

--#part settle

--#put sliding_window_segments.without
if v and #v >= 11 and keeps == 0 then v = without(v, mark, size - spent) end
--#end

--#part window

here, ends = from, from + X
--#end

--#part lend

--#put lease.charge
--#end

--#part credit

	local i = Y % 64
	if #v ~= 15 + 4 * i then return {} end
	local start, newer = unpack('<I7I4', v)
	local segments = ''
	while i >= 0 do
		local count = unpack('<I4', v, 12 + 4 * i)
		local taken = math.min(cost, count)
		cost = cost - taken
		if i > 0 then newer = newer - taken end
		segments = pack('<I4', count - taken) .. segments
		i = i - 1
	end
	value = pack('<I7I4', start, newer) .. segments
--#end
