package redis

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core"
)

// OfReply classifies the text of an error that a server has replied with. It returns ErrRefused if the error is about the call, and
// ErrReply if it is about the server, which is out of memory, is loading, or is not the master, for example. A client wraps the result in
// its own error.
//
// An error is about the call if the user's ACL forbids something, if the server does not have a command, or if a script fails. All other
// errors, known or not, are about the server.
func OfReply(text string) error {
	word, rest, _ := strings.Cut(text, " ")
	switch word {
	case "NOPERM", "WRONGTYPE":
		return ErrRefused
	case "ERR":
		if inner := innerError.FindStringSubmatch(rest); inner != nil { // of Redis 6.2
			return OfReply(inner[1])
		}
		if strings.Contains(rest, "user_script") || strings.Contains(rest, "The user executing the script") || strings.Contains(rest, "ACL failure in script") {
			return ErrRefused
		}
	}
	return ErrReply
}

var (
	// innerError finds the error of a command that a script has called, in the form of Redis 6.2.
	innerError = regexp.MustCompile(`@user_script: ?\d+: -([A-Z]+ .*)`)

	// scriptLine finds the number of the script's line that has failed.
	scriptLine = regexp.MustCompile(`@?user_script: ?(\d+)`)

	// namedCommand finds the name of the command in an error of Redis 7.2, or of a script of ours.
	namedCommand = regexp.MustCompile(`'([A-Za-z|]+)' command`)

	// calledCommand finds the commands that a line of a script calls.
	calledCommand = regexp.MustCompile(`call\('([A-Z]+)'`)
)

// refused adds to an ErrRefused which rules it concerns, of those of the checks, and what a user can do about it. It returns other errors
// unchanged.
func (s *Store) refused(err error, script *Script, checks []core.Check) error {
	if !errors.Is(err, ErrRefused) {
		return err
	}
	text := err.Error()
	prefix := strings.TrimSuffix(s.naming.prefix, "{")
	commands := commandsOf(text, script)
	subject, needs := concerned(checks, commands), " needs"
	if strings.HasPrefix(subject, "rules") {
		needs = " need"
	}
	switch {
	case strings.Contains(text, "keys") || strings.Contains(text, "access a key"):
		return fmt.Errorf("%s: Redis's ACL does not let the user at keys that begin with %s; allow ~%s*: %w", subject, prefix, prefix, err)
	case strings.Contains(text, "Unknown Redis command") && len(commands) > 0:
		return fmt.Errorf("%s the command %s, which the server does not have under that name: %w", subject+needs, strings.Join(commands, " or "), err)
	case !isOfRights(text):
		return fmt.Errorf("%s: %w", subject, err)
	case len(commands) == 0:
		return fmt.Errorf("%s a command that Redis's ACL does not let the user run; allow those that docs/redis.md lists: %w", subject+needs, err)
	}
	allow := ""
	for _, command := range commands {
		allow += " +" + strings.ToLower(command)
	}
	return fmt.Errorf("%s the command %s, which Redis's ACL does not let the user run; allow%s (docs/redis.md lists all that rules need): %w",
		subject+needs, strings.Join(commands, " or "), allow, err)
}

// isOfRights reports whether an error says that the user lacks a permission.
func isOfRights(text string) bool {
	return strings.Contains(text, "NOPERM") || strings.Contains(text, "The user executing the script") || strings.Contains(text, "ACL failure")
}

// commandsOf returns the commands that an error is about: the one that it names, or all that the script calls in the line that has
// failed, since Redis before 7.2 names none.
func commandsOf(text string, script *Script) []string {
	if named := namedCommand.FindStringSubmatch(text); named != nil {
		return []string{strings.ToUpper(named[1])}
	}
	var commands []string
	place := scriptLine.FindStringSubmatch(text)
	if place == nil {
		return nil
	}
	number, err := strconv.Atoi(place[1])
	lines := strings.Split(script.Source, "\n")
	if err != nil || number < 1 || number > len(lines) {
		return nil
	}
	for _, called := range calledCommand.FindAllStringSubmatch(lines[number-1], -1) {
		commands = append(commands, called[1])
	}
	return commands
}

// commandsOfAll are the commands that all rules need. A rule also needs those in the row of its algorithm. A rule with an overflow policy
// may need any other.
const commandsOfAll = " EVAL EVALSHA TIME GET PSETEX "

// concerned names the rules of a call that need one of the commands, or all its rules if none is known to. It names a rule once, although
// a rule may have several limits, such as one of requests and one of concurrency.
func concerned(checks []core.Check, commands []string) string {
	var all, names []string
	for i := range checks {
		name := ruleName(checks[i].Rule)
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
		if !slices.Contains(names, name) && needsOne(checks[i].Rule, commands) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		names = all
	}
	if len(names) > 1 {
		return "rules " + strings.Join(names, ", ")
	}
	return "rule " + names[0]
}

// needsOne reports whether a rule needs one of the commands.
func needsOne(r *core.Rule, commands []string) bool {
	for _, command := range commands {
		word := " " + command + " "
		if strings.Contains(commandsOfAll, word) || r.HasOverflowPolicy() || strings.Contains(algorithmOf(r.Limit).commands, word) {
			return true
		}
	}
	return false
}

// ruleName returns the name of a rule in messages, quoted.
func ruleName(r *core.Rule) string {
	if r.Namespace != "" {
		return strconv.Quote(r.Name()) + " of " + strconv.Quote(r.Namespace)
	}
	return strconv.Quote(r.Name())
}
