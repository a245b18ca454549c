package redis

import (
	"crypto/sha1" // EVALSHA names scripts by it; it keeps no secret
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core/rate"
)

// Script is a Lua script, with the name under which a server keeps it once it has it.
type Script struct {
	Source string
	SHA1   string // in hexadecimal, for EVALSHA
	Texts  bool   // it replies with a list of texts, and not with numbers

	name string
}

// The scripts. Each is put together from parts of the files in scripts, of which go generate makes lua.go: see put.
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
	scripts []*Script // all that newScriptFor has made; declared first, since the interpreter sets variables in the order of the source

	scriptsOfOne        = makeScriptsOfOne("one")
	scriptsOfOneLine    = makeScriptsOfOne("one_line")
	scriptOfSeveral     = newScript("several")
	scriptOfSeveralLine = newScript("several_line")
	scriptOfRefund      = newScript("refund")

	// For requests under rules with an overflow policy.
	scriptOfOverflow = newScript("overflow")
	scriptOfSettle   = newScript("settle")
	scriptOfRenewal  = newScript("renewal")
	scriptOfRelease  = newScript("release")

	scriptOfLease      = newScript("lease")                 // see leaseCache
	scriptOfEventual   = withTexts(newScript("eventual"))   // see eventually
	scriptOfMark       = newScript("mark")                  // see comparison
	scriptOfCarry      = newScript("carry")                 // see Carry
	scriptOfFleet      = newScript("fleet")                 // see Agree
	scriptOfExceptions = withTexts(newScript("exceptions")) // see Exceptions
	scriptOfNothing    = newScript("nothing")               // see runMoving

	// For keys that somebody blocks, unblocks, resets or gives units back to by hand, whatever their rule.
	scriptOfBlock  = newScript("block")
	scriptOfReset  = newScript("reset")
	scriptOfCredit = newScript("credit")
)

// lineNumbers is how many numbers are in the line with which one_line.lua replies: those of any reply, and two in seconds.
const lineNumbers = 6

// newScript makes the script of a file.
func newScript(file string) *Script { return newScriptFor(nil, file, file) }

func withTexts(s *Script) *Script {
	s.Texts = true
	return s
}

// makeScriptsOfOne makes the script of a file for each algorithm, and returns them by rate.Algorithm.
func makeScriptsOfOne(file string) []*Script {
	list := make([]*Script, len(algorithms))
	for i := 1; i < len(algorithms); i++ {
		if i != int(rate.InFlight) {
			list[i] = newScriptFor(algorithms[i], file, algorithms[i].name+strings.TrimPrefix(file, "one"))
		}
	}
	return list
}

// newScriptFor makes the script of a file, with the parts of algorithm a if it is not nil, and adds it to scripts. It panics if a part is missing.
func newScriptFor(a *algorithm, file, name string) *Script {
	var source strings.Builder
	source.WriteString("-- weir: " + name + "\n")
	if missing := put(&source, file, a); missing != "" {
		panic("redis: scripts/" + file + ".lua needs the part " + missing + ", which no file has")
	}
	sum := sha1.Sum([]byte(source.String())) //nolint:gosec // not a secret
	s := &Script{Source: source.String(), SHA1: hex.EncodeToString(sum[:]), name: name}
	scripts = append(scripts, s)
	return s
}

// put writes a part. If its name begins with a period, it is algorithm a's: that of a's file, or else of algorithm.lua. In place of the part's lines
// that begin with --# it writes other parts:
//
//	--#put name   that part
//	--#each name  a choice by the rule's algorithm, with that part for each
//	--#some name  the same, but algorithms in which requests queue may lack the part; with one that does, the script ends with an error
//
// It returns the name of a part that is missing, or "".
func put(b *strings.Builder, name string, a *algorithm) (missing string) {
	text, ok := lua[name]
	if strings.HasPrefix(name, ".") {
		if text, ok = lua[a.name+name]; !ok {
			text, ok = lua["algorithm"+name]
			name = a.name + name
		}
	}
	if !ok {
		return name
	}
	pieces := strings.Split(text, "--#")
	b.WriteString(pieces[0])
	for _, piece := range pieces[1:] {
		line, rest, _ := strings.Cut(piece, "\n")
		word, of, _ := strings.Cut(line, " ")
		if word == "put" {
			missing = put(b, of, a)
		} else {
			missing = putChoice(b, of, word == "each")
		}
		if missing != "" {
			return missing
		}
		b.WriteString(rest)
	}
	return ""
}

// putChoice writes a choice by the rule's algorithm. each says that no algorithm that counts may lack the part, not even one with a queue.
func putChoice(b *strings.Builder, name string, each bool) (missing string) {
	word := "\nif"
	for i := 1; i < len(algorithms); i++ {
		var text strings.Builder
		if missing = put(&text, name, algorithms[i]); missing == "" {
			b.WriteString(word + " algorithm == " + strconv.Itoa(i) + " then -- " + algorithms[i].name + "\n" + text.String())
			word = "\nelseif"
		} else if i != int(rate.InFlight) && (each || algorithms[i].kind&kindQueue == 0) {
			return missing
		}
	}
	b.WriteString("\nelse\n\terror('no algorithm ' .. algorithm)\nend\n")
	return ""
}
