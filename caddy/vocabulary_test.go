package ratelimit

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/underrace"
)

// formerWords are words that the code, its messages and the docs had for a while, and that have given way to the field's standard
// terms. Each pattern finds a word in prose, in any case and tense, and in identifiers, in camel case and with underscores.
var formerWords = []struct {
	has     string // a part of all that the pattern finds, in lower case
	pattern string
	instead string
	because string
	is, not []string // texts in which the pattern must find something, and in which it must not
}{
	{"shut", `shut(s|ting)?[ _-]?out|\bshut(s|ting)? (\w+ ){1,2}out\b|(?-i:Shuts?\w*Out)|isShut|shutUntil|shutByHand`,
		"block, blocked", "rate limiters and firewalls block clients",
		[]string{"ShutOut(key)", "is shut out by hand", "shut_out", "shutting-out", "a penalty shuts a key out", "PenaltyShutsAClientOut"},
		[]string{"the server shuts down", "RegisterOnShutdown", "shut the door and go out"}},
	{"let", `\b(let|lets|letting) (\w+ )?in([^\w-]|$)|\blet_in\b|(?-i:[lL]etIn|LETIN)`,
		"unblock for keys, allow or admit for requests", "it is the opposite of block, and what the admin API calls it",
		[]string{"LetIn(key)", "who is let in again", "lets them in", "let_in"},
		[]string{"let me say it in words", "letters in a name", "applets in it", "deleting", "lets in-flight requests end"}},
	{"express", `express[ _-]?(way|path)`,
		"fast path", "it is the standard term",
		[]string{"the express way", "expressPath"},
		[]string{"an expression", "express it"}},
	{"way", `way[ _-]?of[ _-]?all`,
		"general path", "it is the opposite of the fast path",
		[]string{"the way of all requests"},
		[]string{"a way of counting"}},
	{"conduct", `conduct`,
		"overflow policy", "it says what happens to requests over a limit",
		[]string{"zone_conduct.go", "sharedConduct", "a rule's conduct"},
		[]string{"con duct"}},
	{"twice", `\b(is|are|was|were) there twice`,
		"duplicate", "it is what other programs say of a second key or name",
		[]string{`"name" is there twice, first in line 1`},
		[]string{"is sent twice"}},
	{"twice", `\b(is|are|was|were) (set|given|defined) twice`,
		"duplicate", "it is what other programs say of a second setting",
		[]string{"limit is set twice"},
		[]string{"a header that is sent twice"}},
	{"beside", `\b(stand|stands|standing|stood)[ _-]?beside`,
		"mutually exclusive for settings, beside or together with for others", "it is the standard term for settings of which one must go",
		[]string{"count: stands beside count_rejected", "cannot stand beside"},
		[]string{"write one beside it"}},
	{"counted", `what (was|were|has been|had been) counted`,
		"counts, counters", "the subject is a noun: counters survive a reload",
		[]string{"what was counted stays"},
		[]string{"what is counted"}},
	{"force", `what was in force`,
		"the previous rules", "the subject is a noun: the previous rules stay in force",
		[]string{"what was in force stays so"},
		[]string{"the rules that are in force"}},
	{"except", `whom (it|they|a rule|the rule|its \w+) except`,
		"what it exempts", "a rule exempts requests and clients from a limit",
		[]string{"whom it excepts"},
		[]string{"except private addresses"}},
	{"turn", `\bwait(s|ed|ing)? for (its|their|a|the) turns?\b`,
		"wait until the reservation is due, or until the limit admits it", "what a waiting request has is a reservation",
		[]string{"requests that wait for their turn"},
		[]string{"in turn"}},
	{"core.watch", `\bcore\.Watch\b`,
		"core.Metering", "to watch is to follow files for changes",
		[]string{"a core.Watch of it"},
		[]string{"ruleset.Watch", "core.Watcher"}},
	{"told", `told_?fields|\bmaketold\b|\bcore\.told\b`,
		"core.QuotaFields, core.MakeQuotaFields", "quota fields are the header fields that tell clients their quota",
		[]string{"toldFields", "core.MakeTold", "core.Told"},
		[]string{"told apart"}},
	{"turnaway", `\bcore\.turnaway\b|(?-i:TurnAway)`,
		"core.RejectAll", "a limiter rejects requests",
		[]string{"core.TurnAway", "isTurnAway"},
		[]string{"turned away", "turnAway(w)"}},
}

// withFormerWords are the files that may have them, and why.
var withFormerWords = map[string]string{
	"CHANGELOG.md":             "it says what things were called before",
	"caddy/vocabulary_test.go": "it lists the words",
}

// One word stands for one thing, in code, messages, docs, examples and scripts, so that a reader learns it once.
func TestFormerWordsDoNotComeBack(t *testing.T) {
	underrace.OneGoroutine(t)
	patterns := make([]*regexp.Regexp, len(formerWords))
	for i := range formerWords {
		patterns[i] = finding(formerWords[i].pattern)
	}
	read := make(map[string]bool)
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return unlessGone(err)
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, ".."+string(filepath.Separator)))
		if entry.IsDir() {
			if slices.Contains([]string{".git", ".venv", "bin", "node_modules"}, entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() || !hasWords(name) {
			return nil
		}
		for i := range patterns {
			if withFormerWords[name] == "" && patterns[i].MatchString(name) {
				t.Errorf("%s: the name has %q; write %s: %s", name, patterns[i].FindString(name), formerWords[i].instead, formerWords[i].because)
			}
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return unlessGone(err)
		}
		read[name] = true
		if withFormerWords[name] != "" || bytes.IndexByte(data, 0) >= 0 {
			return nil
		}
		for i, pattern := range patterns {
			for _, place := range wordsAt(pattern, formerWords[i].has, string(data)) {
				line := 1 + strings.Count(string(data[:place[0]]), "\n")
				t.Errorf("%s:%d: %q; write %s: %s", name, line, data[place[0]:place[1]], formerWords[i].instead, formerWords[i].because)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// These must be among the files, so that a change of folders cannot make the test read nothing.
	for _, name := range []string{
		"core/memory.go", "redis/scripts/overflow.lua", "caddy/page/page.html", "tools/flatten/fragments/gate.tmpl", "README.md", "docs/rules.md", "docs/grafana/alerts.yaml",
		"examples/rules/Caddyfile", "scripts/test", "Makefile", "testdata/vectors/token_bucket.txt", "caddy/testdata/adapt/zone_limit.caddyfiletest", "replay/report.css", ".github/workflows/test.yml",
	} {
		if !read[name] {
			t.Errorf("%s was not read", name)
		}
	}
	for name := range withFormerWords {
		if !read[name] {
			t.Errorf("%s is an exception, and is not there", name)
		}
	}
}

// unlessGone returns an error, but for one of a file that another test has removed meanwhile.
func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// finding returns the expression of a pattern: in any case, and with any number of blanks where the pattern has one.
func finding(pattern string) *regexp.Regexp {
	const between = `[ _-]?`
	parts := strings.Split(pattern, between)
	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], " ", " +")
	}
	return regexp.MustCompile("(?i)" + strings.Join(parts, `[ _-]*`))
}

// hasWords reports whether people read a file.
func hasWords(name string) bool {
	switch filepath.Ext(name) {
	case ".png", ".gz", ".pem", ".sum", ".mod", ".test", ".out", ".prof":
		return false
	}
	return true
}

// wordsAt returns where a text has what a pattern finds, of which has is a part. It looks only at the lines around has, since expressions
// take their time for a whole repository. Where a line break divides words, it finds them.
func wordsAt(pattern *regexp.Regexp, has, text string) [][2]int {
	var places [][2]int
	lower := []byte(text)
	for i, c := range lower { // bytes.ToLower may change lengths
		if 'A' <= c && c <= 'Z' {
			lower[i] = c - 'A' + 'a'
		}
	}
	for at := 0; ; {
		found := bytes.Index(lower[at:], []byte(has))
		if found < 0 {
			return places
		}
		at += found
		begin := max(0, strings.LastIndexByte(text[:at], '\n'))
		begin = 1 + strings.LastIndexByte(text[:begin], '\n') // where the line before begins
		end := at + len(has)
		for range 2 { // to the end of this line and of the next
			if line := strings.IndexByte(text[end:], '\n'); line >= 0 {
				end += line + 1
			} else {
				end = len(text)
			}
		}
		for _, place := range pattern.FindAllStringIndex(joined(text[begin:end]), -1) {
			if from := begin + place[0]; from <= at && at < begin+place[1] {
				places = append(places, [2]int{from, begin + place[1]})
			}
		}
		at += len(has)
	}
}

// joined returns a text with blanks for each line break, and for the sign of a comment and the indentation behind it.
func joined(text string) string {
	out := []byte(text)
	for i := range out {
		if out[i] != '\n' {
			continue
		}
		out[i] = ' '
		for j := i + 1; j < len(out) && strings.IndexByte(" \t/#-*", out[j]) >= 0; j++ {
			out[j] = ' '
		}
	}
	return string(out)
}

func TestPatternsOfFormerWordsFindThemAndNothingElse(t *testing.T) {
	for _, word := range formerWords {
		pattern := finding(word.pattern)
		for _, text := range word.is {
			if len(wordsAt(pattern, word.has, text)) == 0 {
				t.Errorf("%s does not find %q", word.pattern, text)
			}
			divided := "// of which\n\t// " + strings.Replace(text, " ", "\n\t// ", 1) + "\n"
			if len(wordsAt(pattern, word.has, divided)) == 0 {
				t.Errorf("%s does not find %q where lines divide it", word.pattern, text)
			}
		}
		for _, text := range word.not {
			if pattern.MatchString(text) {
				t.Errorf("%s finds %q", word.pattern, text)
			}
		}
	}
}
