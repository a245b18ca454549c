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

// OfReply returns what stands for an error that a server has replied, to be wrapped in what a client makes of it: ErrRefused where the
// reply is about the call, and ErrReply where it is about the server, which is out of memory, loads, or is not the master.
//
// About the call are what the ACL of its user forbids, what the server has no command for, and what goes wrong in a script. All else,
// known or not, is taken to be about the server.
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
	// innerError finds what a command in a script has failed with, in the words of Redis 6.2.
	innerError = regexp.MustCompile(`@user_script: ?\d+: -([A-Z]+ .*)`)

	// scriptLine finds in which line of a script an error came about.
	scriptLine = regexp.MustCompile(`@?user_script: ?(\d+)`)

	// namedCommand finds the command that Redis 7.2 names, and what a script of ours has said of itself.
	namedCommand = regexp.MustCompile(`'([A-Za-z|]+)' command`)

	// calledCommand finds the commands of a line.
	calledCommand = regexp.MustCompile(`call\('([A-Z]+)'`)
)

// refused adds to an ErrRefused which of the rules of the checks it concerns, and what its user can do about it. It returns other errors as
// they are.
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

// isOfRights reports whether an error says that a user may not do something.
func isOfRights(text string) bool {
	return strings.Contains(text, "NOPERM") || strings.Contains(text, "The user executing the script") || strings.Contains(text, "ACL failure")
}

// commandsOf returns the commands that an error is about: the one that it names, or those that the script calls in the line where it
// came about. (Redis before 7.2 names none.)
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

// commandsOfAll are run for all rules, those of an algorithm's row for its rules, and all others for rules with a conduct.
const commandsOfAll = " EVAL EVALSHA TIME GET PSETEX "

// concerned names the rules of a call that need one of the commands; all, where that is not to be told. A rule may have several limits, such
// as its requests' and its concurrency's.
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

// needsOne reports whether one of the commands is run for a rule.
func needsOne(r *core.Rule, commands []string) bool {
	for _, command := range commands {
		word := " " + command + " "
		if strings.Contains(commandsOfAll, word) || r.HasOverflowPolicy() || strings.Contains(algorithmOf(r.Limit()).commands, word) {
			return true
		}
	}
	return false
}

// ruleName returns what messages call a rule.
func ruleName(r *core.Rule) string {
	if r.Namespace() != "" {
		return strconv.Quote(r.Name()) + " of " + strconv.Quote(r.Namespace())
	}
	return strconv.Quote(r.Name())
}
