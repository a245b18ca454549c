-- Reads and writes exceptions: see Exceptions. The value has a version of 16 digits, the time of the last change in microseconds, and a document. The
-- arguments are the version that is known; the one to be replaced, or 'lost' to replace any that is older than the known one; how long the value lasts, in
-- milliseconds; and a document, or ''. It replies with the time, the version, whether the document was taken, and the document if it is not known.

--#part
local call, format, sub = redis.call, string.format, string.sub
local known, over, life, document = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local value, taken = call('GET', KEYS[1]) or '', '0'
local version = sub(value, 1, 16)
if document ~= '' and (over == version or over == 'lost' and version < known) then
	for _, last in ipairs({version, known}) do now = math.max(now, (tonumber(last) or 0) + 1) end
	version, taken = format('%016.0f', now), '1'
	call('PSETEX', KEYS[1], life, version .. document)
	now = time[1] * 1000000 + time[2]
end
return {format('%.0f', now), version, taken, taken == '0' and version ~= known and sub(value, 17) or ''}
--#end
