package redis

import (
	"crypto/sha1" // what EVALSHA names scripts by, not a secret
	"encoding/hex"
	"strconv"
	"strings"
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
//	luaShutOut                   the state, and whether the key is shut out in its place
//	luaTokenBucket and the like  what the rule says, and what to keep
//	luaKeep, luaStay             keeping it
//
// Each is called with the keys, and with one argument that has a part for each key, made by appendArgument. (A single one: each
// costs Redis a quarter of a microsecond.) A second argument asks for the server's time at the end of the reply. The reply has four whole numbers for each key: how many units remain, or -1 less
// that many if the request is rejected; how long it is to wait, for its turn or until it would be admitted (-1: never);
// when the quota is whole again; and, of a request that is allowed, when there is more of it than remains (0: nothing was used). Times are microseconds from now. A reply of one number is the server's time alone: it
// lies in none of the calendar's windows that came with the arguments, and nothing was done.
//
// Numbers are exact: they are kept and sent as packed integers or doubles, never as Lua's decimal text, and what could
// exceed the 2⁵³ of a double is divided in steps.
var (
	scriptsOfOne     = makeScriptsOfOne(luaOneEnd)
	scriptsOfOneLine = makeScriptsOfOne(luaOneLineEnd)
	scriptOfSeveral  = newScript(makeScriptOfSeveral())
	scriptOfRefund   = newScript(luaBegin + luaRefund)

	// Of requests under rules with a conduct: see luaConductBegin.
	scriptOfConduct = newScript(makeScriptOfConduct(luaConductEnd))
	scriptOfSettle  = newScript(makeScriptOfConduct(luaSettleEnd))
	scriptOfRenewal = newScript(luaBegin + luaRenew)
	scriptOfRelease = newScript(luaBegin + luaRelease)

	scriptOfMark    = newScript(luaMark)           // see comparison
	scriptOfNothing = newScript("return {0, 0}\n") // see runMoving

	// Of keys that are shut out, let in or reset by hand, whatever their rule.
	scriptOfShutOut = newScript(makeScriptOfConduct(luaShutOutEnd))
	scriptOfReset   = newScript(makeScriptOfConduct(luaResetEnd))
)

// pieces returns those of the algorithms, by core.Algorithm, each behind what decides where the key is shut out. logs is what follows
// that of a log. (A function: the interpreter sets variables in their order, and not in the order that they need each other.)
func pieces(logs string) []string {
	return []string{
		"",
		luaState + shutOutOr("X", luaTokenBucket),
		luaState + shutOutOr("X", luaLeakyBucket),
		luaState + shutOutOr("R", luaFixedWindow),
		luaStateOfLog + shutOutOr("R", luaSlidingWindowLog+logs),
		luaState + shutOutOr("R", luaSlidingWindowCounter),
	}
}

// shutOutOr returns an algorithm's piece behind luaShutOut. most is the most that a request may cost.
func shutOutOr(most, piece string) string {
	return strings.Replace(luaShutOut, "MOST", most, 1) + piece + "end\n"
}

func newScript(source string) *Script {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // not a secret
	return &Script{Source: source, SHA1: hex.EncodeToString(sum[:])}
}

func makeScriptsOfOne(end string) []*Script {
	algorithms := pieces("")
	list := make([]*Script, len(algorithms))
	for i := 1; i < len(algorithms); i++ {
		list[i] = newScript(luaBegin + luaOneBegin + luaRule + algorithms[i] + end)
	}
	return list
}

func makeScriptOfSeveral() string {
	source := luaBegin + luaSeveralBegin + luaRule
	word := "if"
	algorithms := pieces("")
	for i := 1; i < len(algorithms); i++ {
		source += word + " algorithm == " + strconv.Itoa(i) + " then\n" + algorithms[i]
		word = "elseif"
	}
	return source + "end\n" + luaSeveralEnd
}

// makeScriptOfConduct puts a script together in which the algorithms are a function: it is asked at other times and costs than the
// request's. Some of what they say differs there: a key's time may be ahead of now, and a time may lie in none of the windows sent.
func makeScriptOfConduct(end string) string {
	source := luaBegin + luaConductBegin
	word := "if"
	algorithms := pieces(luaEntries)
	for i := 1; i < len(algorithms); i++ {
		piece := strings.Replace(algorithms[i], "at - now > P", "at - now > P + ahead", 1)
		piece = strings.Replace(piece, "start - now <= P", "start - now <= P + ahead", 1)
		piece = strings.Replace(piece, luaOwed, luaOwe, 1)
		piece = strings.Replace(piece, "return {now}", "redirected = true return true", 1)
		source += word + " algorithm == " + strconv.Itoa(i) + " then\n" + piece
		word = "elseif"
	}
	source += "else\n" + luaState + shutOutOr("1000000000", "") // of requests in flight, which keep no state there
	return source + "end\n" + luaConduct + end
}

// luaBegin: now, and real, is the server's time in microseconds. divide returns a·b div c and the remainder, exactly, for whole
// numbers: where the product does not fit a double it takes six bits of a at a time, the highest first, for which b and c
// must be below 2⁴⁶.
const luaBegin = `
local pack, unpack, format = struct.pack, struct.unpack, string.format
local call, pcall = redis.call, redis.pcall
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local real = now

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
`

// luaRule reads a rule's part of the argument, which begins at position: cost is what the request takes, R and P are the limit's requests and period, X and Y
// what else its algorithm has. counts: a rejected request is charged too, as far as it uses the limit up; where it is 'whole' the request
// is charged whatever the limit says, as core's charge does. shadow: the rule vetoes nothing. peek: nothing is
// kept. denied: another rule rejects the request, so that one that this rule would admit is not charged.
//
// The algorithm's piece sets ok, remaining, wait, reset and more, and in value what is to be kept until the reset.
const luaRule = `
local algorithm, counts, shadow, peek, cost, R, P, X, Y, position = unpack('<BBBBddddd', argument, position)
counts = counts == 1 and peek == 0
local ok, remaining, wait, reset, more, left, value, header = false, 0, 0, 0, 0, 0
`

// luaKeep keeps value under key until the reset, when it makes no difference any more. (A millisecond is added for a server
// whose expiries count from the script's start.) A value with a header is added to a long log: see luaSlidingWindowLog.
const luaKeep = `
local life = format('%d', (reset + (-reset) % 1000) / 1000 + 1)
if header then
	call('SETRANGE', key, 0, header)
	call('APPEND', key, value)
	call('PEXPIRE', key, life)
else
	call('PSETEX', key, life, value)
end
`

// luaStay has the key of a bucket that rejects last until what its client was told: where a faster limit has charged it, it was to
// expire before. (Redis 6.2 does not know the option, and does nothing then: what the fastest of the limits has refilled is forgotten.)
const luaStay = `
pcall('PEXPIRE', key, format('%d', (reset + (-reset) % 1000) / 1000 + 1), 'GT')
`

const luaOneBegin = `
local key, argument, position, denied = KEYS[1], ARGV[1], 1, false
`

const luaOneEnd = luaOneKeep + `
return {remaining, wait, reset, more, ARGV[2] and now}
`

// luaOneLineEnd replies with a line in place of an array, but where the server's time is asked for.
const luaOneLineEnd = luaOneKeep + `
if ARGV[2] then return {remaining, wait, reset, more, now} end
return {ok = format('%d %d %d %d', remaining, wait, reset, more)}
`

const luaOneKeep = `
if value and peek == 0 then
` + luaKeep + `
elseif not ok and algorithm <= 2 and left <= 0 and peek == 0 then
` + luaStay + `
end
if not ok then remaining = -1 - remaining end
`

// luaSeveralBegin: the first pass evaluates every rule as if all admitted. If an enforced one does not, a second pass finds
// out what is told and kept then. Nothing is written before all is known.
const luaSeveralBegin = `
local n, argument, denied, headers = #KEYS, ARGV[1]
local reply = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
for i = 4 * n + 1, 16 do reply[i] = nil end
local values = {false, false, false, false}
for pass = 1, 2 do
local rejects, next = false, 1
for i = 1, n do
local key, position = KEYS[i], next
`

const luaSeveralEnd = `
	next = position
	if value and peek == 0 then
		values[i] = value
		if header then
			headers = headers or {}
			headers[i] = header
		end
	else
		values[i] = not ok and algorithm <= 2 and left <= 0 and peek == 0
	end
	if not ok then
		remaining = -1 - remaining
		rejects = rejects or shadow == 0
	end
	local place = 4 * i
	reply[place - 3], reply[place - 2], reply[place - 1], reply[place] = remaining, wait, reset, more
end
if denied or not rejects then break end
denied = true
end
for i = 1, n do
	local value = values[i]
	if value then
		local key, header, reset = KEYS[i], headers and headers[i], reply[4 * i - 1]
		if value == true then
` + luaStay + `
		else
` + luaKeep + `
		end
	end
end
if ARGV[2] then reply[4 * n + 1] = now end
return reply
`
