package redis

import (
	"crypto/sha1" // what EVALSHA names scripts by, not a secret
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core"
)

// Script is a Lua script, and the name that a server which has it knows it by.
type Script struct {
	Source string
	SHA1   string // in hexadecimal, for EVALSHA

	name string // of its file in testdata
}

// The family of scripts. Each is put together from parts, the constants whose names begin with lua, in the order in which they are listed here;
// what an algorithm says is in its row, and stands where choice is. Whole, as Redis gets them, the scripts are files of testdata.
//
// A request under one rule, as most are, runs the script of its algorithm; one under several runs the one that has them all. Each is called
// with the keys, and with one argument that has a part for each key, made by appendArgument. (A single one: each costs Redis a quarter of a
// microsecond.) A second argument asks for the server's time at the end of the reply. The reply has four whole numbers for each key: how many
// units remain, or -1 less that many if the request is rejected; how long it is to wait, for its turn or until it would be admitted (-1:
// never); when the quota is whole again; and, of a request that is allowed, when there is more of it than remains (0: nothing was used). Times
// are microseconds from now. A reply of one number is the server's time alone: it lies in none of the calendar's windows that came with the
// arguments, and nothing was done.
//
// Numbers are exact: they are kept and sent as packed integers or doubles, never as Lua's decimal text, and what could exceed the 2⁵³ of a
// double is divided in steps.
var (
	scripts []*Script // all of them; ahead of them, since the interpreter sets variables in their order

	scriptsOfOne     = makeScriptsOfOne("", luaOneEnd)
	scriptsOfOneLine = makeScriptsOfOne("_line", luaOneLineEnd)
	scriptOfSeveral  = newScript("several", luaBegin, luaSeveralBegin, luaRule, choice(decides), luaSeveralEnd)
	scriptOfRefund   = newScript("refund", luaBegin, luaRefundBegin, luaRule, luaRead, luaRefund, choice(refunds), luaRefundEnd)

	// Of requests under rules with a conduct.
	scriptOfOverflow = newOverflowScript("overflow", luaOverflowEnd)
	scriptOfSettle   = newOverflowScript("settle", luaSettleEnd)
	scriptOfRenewal  = newScript("renewal", luaBegin, luaRenew)
	scriptOfRelease  = newScript("release", luaBegin, luaRelease)

	scriptOfMark    = newScript("mark", luaMark)              // see comparison
	scriptOfNothing = newScript("nothing", "return {0, 0}\n") // see runMoving

	// Of keys that are shut out, let in or reset by hand, whatever their rule.
	scriptOfBlock = newOverflowScript("block", luaBlockEnd)
	scriptOfReset = newOverflowScript("reset", luaResetEnd)
)

// newScript puts a script together from its parts, in their order.
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

// newOverflowScript makes a script in which the algorithms are a function: it is asked at other times and costs than the request's.
func newOverflowScript(name, end string) *Script {
	return newScript(name, luaBegin, luaOverflowBegin, choice(decidesWithOverflow), luaOverflow, end)
}

// decision has an algorithm decide, but on a key that is shut out.
func decision(a *algorithm, decide string) string {
	if decide == "" {
		return ""
	}
	return a.read + luaBlock + "\tif cost > " + a.most + " then wait = -1 end\nelse\n" + decide + "end\n"
}

// choice has that part run which is of the rule's algorithm: what decides, also in scripts with a conduct, or gives back. An algorithm without
// one is an error.
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
