package deferral

import (
	"embed"

	goredis "github.com/redis/go-redis/v9"
)

// The scripts get the queue's prefix as their only key, and make the names of the others from it: all of them are in its slot. A number
// becomes text by %.0f, since Lua writes large ones with an exponent.
//
// A server without memory refuses the first command of a script that may need some, and none that follow a write. So a script that stores a
// job begins with such a command before it changes anything: it is executed as a whole, or not at all. Scripts about jobs that are stored begin with
// freeing, a write that needs no memory: so jobs are done on a full server, too, which frees its memory.
//
//go:embed scripts/*.lua
var scripts embed.FS

// script makes the script of that name. It begins with the preamble, and with the functions of the other files named.
func script(name string, before ...string) *goredis.Script {
	source := ""
	for _, part := range append([]string{"preamble"}, append(before, name)...) {
		text, err := scripts.ReadFile("scripts/" + part + ".lua")
		if err != nil {
			panic(err)
		}
		source += "\n" + string(text)
	}
	return goredis.NewScript(source)
}

var (
	// enterScript stores a job that is in no line yet, so no worker takes it. It may be sent again, and then writes again, so that WAIT waits.
	enterScript = script("enter")

	// confirmScript puts a job that is stored at the end of its key's line, once. If there is no room it never does, unless that is promised: then room is
	// no condition.
	confirmScript = script("confirm")

	// lookScript tells what is known before a request is decided. It changes nothing.
	lookScript = script("look")

	// claimScript takes back what dead nodes held, and claims keys whose turn has come.
	claimScript = script("claim")

	// startScript begins an attempt at a job. It returns how much is left of the time in which the job is tried, which begins with its first attempt. If nobody
	// could try it for so long, the time begins afresh.
	startScript = script("start")

	// renewScript renews the lease of a claim.
	renewScript = script("renew")

	// putBackScript ends a claim; the job waits for another turn. Unless its attempt has failed, the time in which it is tried begins afresh.
	putBackScript = script("put_back")

	// finishScript records what became of a job, and ends the claim.
	finishScript = script("finish")

	// getScript describes a job, with the field of its hash that is asked for besides, if any.
	getScript = script("get", "describe")

	// listScript describes the jobs of a set in the order of time and then of ids, behind a time and an id; or those of a key's queue, from an
	// index on. The set has at most 100 jobs of one microsecond.
	listScript = script("list", "describe")

	// cancelScript removes a job that does not run; or, to withdraw it, a job that is not in the line.
	cancelScript = script("cancel")

	// cancelKeyScript removes the jobs of a key that wait, at most so many, the last first. It returns how many there were.
	cancelKeyScript = script("cancel_key")

	// purgeScript forgets jobs of a set that ended long ago, at most so many, the oldest first. It returns how many it has forgotten and how many
	// there are besides. With a bound of 0 it changes nothing.
	purgeScript = script("purge")

	// retryScript puts a dead letter at the end of its key's queue.
	retryScript = script("retry")

	// drainScript ends or begins the acceptance of jobs.
	drainScript = script("drain")
)
