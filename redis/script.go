package redis

import (
	"crypto/sha1" // what EVALSHA names scripts by, not a secret
	"encoding/hex"
	"strconv"
)

// Script is a Lua script, and the name that a server which has it knows it by.
type Script struct {
	Source string
	SHA1   string // in hexadecimal, for EVALSHA
}

// The family of scripts. A request under one rule, as most are, runs the script of its algorithm; one under several runs
// the one that has them all. They are put together from the same pieces:
//
//	luaBegin                     the time, and arithmetic
//	luaRule                      a rule's arguments
//	luaTokenBucket and the like  what the rule says, and what to keep
//	luaKeep                      keeping it
//
// Each is called with the keys, and for each key with an argument made by appendArgument. One more argument asks for the
// server's time at the end of the reply. The reply has three whole numbers for each key: how many units remain, or -1 less
// that many if the request is rejected; how long it is to wait, for its turn or until it would be admitted (-1: never); and
// when the quota is whole again. Times are microseconds from now. A reply of one number is the server's time alone: it
// lies in none of the calendar's windows that came with the arguments, and nothing was done.
//
// Numbers are exact: they are kept and sent as packed integers or doubles, never as Lua's decimal text, and what could
// exceed the 2⁵³ of a double is divided in steps.
var (
	scriptsOfOne    = makeScriptsOfOne()
	scriptOfSeveral = newScript(makeScriptOfSeveral())
	scriptOfRefund  = newScript(luaBegin + luaRefund)
)

// pieces are those of the algorithms, by core.Algorithm.
var pieces = []string{"", luaTokenBucket, luaLeakyBucket, luaFixedWindow, luaSlidingWindowLog, luaSlidingWindowCounter}

func newScript(source string) *Script {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // not a secret
	return &Script{Source: source, SHA1: hex.EncodeToString(sum[:])}
}

func makeScriptsOfOne() []*Script {
	list := make([]*Script, len(pieces))
	for i := 1; i < len(pieces); i++ {
		list[i] = newScript(luaBegin + luaOneBegin + luaRule + pieces[i] + luaOneEnd)
	}
	return list
}

func makeScriptOfSeveral() string {
	source := luaBegin + luaSeveralBegin + luaRule
	word := "if"
	for i := 1; i < len(pieces); i++ {
		source += word + " algorithm == " + strconv.Itoa(i) + " then\n" + pieces[i]
		word = "elseif"
	}
	return source + "end\n" + luaSeveralEnd
}

// luaBegin: now is the server's time in microseconds. divide returns a·b div c and the remainder, exactly, for whole
// numbers: where the product does not fit a double it takes six bits of a at a time, the highest first, for which b and c
// must be below 2⁴⁶. divideUp rounds up.
const luaBegin = `
local pack, unpack, call, pcall = struct.pack, struct.unpack, redis.call, redis.pcall
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

local function divide(a, b, c)
	local product = a * b
	if product < 9007199254740992 then
		local rest = product % c
		return (product - rest) / c, rest
	end
	local scale, quotient, rest = 1, 0, 0
	while scale * 64 <= a do scale = scale * 64 end
	while scale >= 1 do
		local low = a % scale
		local sum = rest * 64 + (a - low) / scale * b
		rest = sum % c
		quotient = quotient * 64 + (sum - rest) / c
		a, scale = low, scale / 64
	end
	return quotient, rest
end

local function divideUp(a, b, c)
	local quotient, rest = divide(a, b, c)
	if rest > 0 then quotient = quotient + 1 end
	return quotient
end
`

// luaRule reads a rule's argument: cost is what the request takes, R and P are the limit's requests and period, X and Y
// what else its algorithm has. counts: a rejected request is charged too. shadow: the rule vetoes nothing. peek: nothing is
// kept. denied: another rule rejects the request, so that one that this rule would admit is not charged.
//
// The algorithm's piece sets ok, remaining, wait and reset, and in value what is to be kept until the reset.
const luaRule = `
local algorithm, counts, shadow, peek, cost, R, P, X, Y = unpack('<BBBBddddd', ARGV[i])
counts = counts == 1 and peek == 0
local ok, remaining, wait, reset, value, header = false, 0, 0, 0
`

// luaKeep keeps value under key until expiry, the millisecond by which it makes no difference any more. A value with a
// header is added to a long log: see luaSlidingWindowLog.
const luaKeep = `
if header then
	call('SETRANGE', key, 0, header)
	if value ~= '' then call('APPEND', key, value) end
	call('PEXPIREAT', key, expiry)
else
	call('SET', key, value, 'PXAT', expiry)
end
`

const luaOneBegin = `
local i, key, denied = 1, KEYS[1], false
`

const luaOneEnd = `
if value and peek == 0 then
	local expiry = now + reset
	expiry = (expiry + (-expiry) % 1000) / 1000
` + luaKeep + `
end
if not ok then remaining = -1 - remaining end
return {remaining, wait, reset, ARGV[2] and now}
`

// luaSeveralBegin: the first pass evaluates every rule as if all admitted. If an enforced one does not, a second pass finds
// out what is told and kept then. Nothing is written before all is known.
const luaSeveralBegin = `
local reply, keys, values, headers, expiries, denied, writes = {}, {}, {}, {}, {}, false
for pass = 1, 2 do
local rejects = false
writes = 0
for i = 1, #KEYS do
local key = KEYS[i]
`

const luaSeveralEnd = `
	if value and peek == 0 then
		writes = writes + 1
		keys[writes], values[writes], headers[writes] = key, value, header or false
		local expiry = now + reset
		expiries[writes] = (expiry + (-expiry) % 1000) / 1000
	end
	if not ok then
		remaining = -1 - remaining
		rejects = rejects or shadow == 0
	end
	reply[3 * i - 2], reply[3 * i - 1], reply[3 * i] = remaining, wait, reset
end
if denied or not rejects then break end
denied = true
end
for i = 1, writes do
	local key, value, header, expiry = keys[i], values[i], headers[i], expiries[i]
` + luaKeep + `
end
if ARGV[#KEYS + 1] then reply[#reply + 1] = now end
return reply
`
