package redis

import (
	"crypto/sha1" // EVALSHA names scripts by it; it keeps no secret
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core"
)

// Script is a Lua script, with the name under which a server keeps it once it has it.
type Script struct {
	Source string
	SHA1   string // in hexadecimal, for EVALSHA

	name string // of its file in testdata
}

// The scripts. Each is put together from parts, the constants whose names begin with lua, in the order in which they are listed here. The
// parts of an algorithm are in its row; choice puts them in. The files in testdata are the whole scripts, as Redis gets them.
//
// A request under one rule, as most are, runs the script of the rule's algorithm. A request under several rules runs the script that has
// all algorithms. A script gets the keys, and one argument with a part for each key, which appendArgument makes. (There is only one, since
// each argument costs Redis a quarter of a microsecond.) A second argument asks for the server's time at the end of the reply.
//
// The reply has four whole numbers for each key:
//
//  1. the units that remain; if the request is rejected, -1 less that many;
//  2. how long the request must wait until its reservation is due; if it is rejected, until it would be admitted (-1: never);
//  3. when the quota is whole again;
//  4. for a request that is allowed, when more units are left than now (0: none are in use).
//
// Times are in microseconds from now. A reply of one number is the server's time: that lies in none of the calendar's windows that came
// with the argument, and the script has done nothing.
//
// Numbers are exact. Scripts keep and send them as packed integers or doubles, never as Lua's decimal text. A division whose dividend
// could exceed the 2⁵³ of a double takes several steps.
var (
	scripts []*Script // all that newScript has made; declared first, since the interpreter sets variables in the order of the source

	scriptsOfOne        = makeScriptsOfOne("", luaOneEnd)
	scriptsOfOneLine    = makeScriptsOfOne("_line", luaOneLineEnd)
	scriptOfSeveral     = newScript("several", luaBegin, luaSeveralBegin, luaRule, choice(decides), luaSeveralEnd)
	scriptOfSeveralLine = newScript("several_line", luaBegin, luaSeveralBegin, luaRule, choice(decides), luaSeveralLineEnd)
	scriptOfRefund      = newScript("refund", luaBegin, luaRefundBegin, luaRule, luaRead, luaRefund, choice(refunds), luaRefundEnd)

	// For requests under rules with an overflow policy.
	scriptOfOverflow = newOverflowScript("overflow", luaOverflowEnd)
	scriptOfSettle   = newOverflowScript("settle", luaSettleEnd)
	scriptOfRenewal  = newScript("renewal", luaBegin, luaRenew)
	scriptOfRelease  = newScript("release", luaBegin, luaRelease)

	scriptOfLease = newScript("lease", luaBegin, luaLeaseBegin, luaRule, choice(luaLeaseDecide), luaLeaseEnd) // see lessee

	scriptOfReplicas = newScript("replicas", luaBegin, luaReplicaBegin, luaRule, choice(luaReplicaDecide), luaReplicaEnd) // see replicas

	scriptOfMark    = newScript("mark", luaMark)              // see comparison
	scriptOfCarry   = newScript("carry", luaBegin, luaCarry)  // see Carry
	scriptOfFleet   = newScript("fleet", luaFleet)            // see Agree
	scriptOfNothing = newScript("nothing", "return {0, 0}\n") // see runMoving

	// For keys that somebody blocks, unblocks or resets by hand, whatever their rule.
	scriptOfBlock = newOverflowScript("block", luaBlockEnd)
	scriptOfReset = newOverflowScript("reset", luaResetEnd)
)

// newScript makes a script of parts, in their order, and adds it to scripts.
func newScript(name string, parts ...string) *Script {
	source := "-- weir: " + name + "\n" + strings.Join(parts, "")
	sum := sha1.Sum([]byte(source)) //nolint:gosec // not a secret
	s := &Script{Source: source, SHA1: hex.EncodeToString(sum[:]), name: name}
	scripts = append(scripts, s)
	return s
}

// makeScriptsOfOne returns the scripts of requests under one rule, by core.Algorithm.
func makeScriptsOfOne(suffix, end string) []*Script {
	list := make([]*Script, len(algorithms))
	for i := 1; i <= len(core.AlgorithmNames); i++ {
		a := algorithms[i]
		list[i] = newScript(a.name+suffix, luaBegin, luaOneBegin, luaRule, decides(a), luaOneKeep, end)
	}
	return list
}

// newOverflowScript makes a script in which the algorithms are a function, evaluate, since it decides at times and costs other than the
// request's, too.
func newOverflowScript(name, end string) *Script {
	return newScript(name, luaBegin, luaOverflowBegin, choice(decidesWithOverflow), luaOverflow, end)
}

// decision returns the Lua that reads a key and decides: by the algorithm, unless the key is blocked by hand.
func decision(a *algorithm, decide string) string {
	if decide == "" {
		return ""
	}
	return a.read + luaBlock + "\tif cost > " + a.most + " then wait = -1 end\nelse\n" + decide + "end\n"
}

// choice returns the Lua that runs the part of the rule's algorithm: decides, decidesWithOverflow or refunds. For an algorithm without that part
// the script ends with an error.
func choice(part func(a *algorithm) string) string {
	source := ""
	word := "\nif"
	for i := 1; i < len(algorithms); i++ {
		if text := part(algorithms[i]); text != "" {
			source += word + " algorithm == " + strconv.Itoa(i) + " then -- " + algorithms[i].name + "\n" + text
			word = "\nelseif"
		}
	}
	return source + "\nelse\n\terror('no algorithm ' .. algorithm)\nend\n"
}

func decides(a *algorithm) string { return decision(a, a.decide) }
func refunds(a *algorithm) string { return a.refund }

func decidesWithOverflow(a *algorithm) string {
	if a.overflow == "" {
		return decides(a)
	}
	return decision(a, a.overflow)
}
