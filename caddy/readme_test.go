package ratelimit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard" // modules that the snippets use

	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/manual"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// manualPages returns the README and the pages of docs.
func manualPages(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("../docs/*.md")
	must.Succeed(t, err)
	pages := make(map[string]string)
	for _, path := range append(paths, "../README.md") {
		name := strings.TrimPrefix(path, "../")
		pages[name] = manual.Page(t, name)
	}
	return pages
}

// whole makes a Caddyfile from a fragment whose marker says where it belongs.
func whole(s manual.Snippet) (string, error) {
	switch where, marked := strings.CutPrefix(s.Marker, "in: "); {
	case !marked && s.Marker != "" && !strings.HasPrefix(s.Marker, "refused: ") && !strings.HasPrefix(s.Marker, "file: ") && s.Marker != "session: Caddyfile":
		return "", fmt.Errorf("the marker %q is unknown", s.Marker)
	case !marked:
		return s.Text, nil
	case where == "global":
		return "{\n" + s.Text + "}\n", nil
	case where == "site":
		return ":8080 {\n" + s.Text + "}\n", nil
	case where == "rate_limit":
		return ":8080 {\nrate_limit {\n" + s.Text + "}\n}\n", nil
	case where == "zone":
		return ":8080 {\nrate_limit {\nzone example {\n" + s.Text + "}\n}\n}\n", nil
	default:
		return "", fmt.Errorf("the marker %q is unknown: a block is in global, site, rate_limit or zone", s.Marker)
	}
}

// ruleFolder is the folder of rule files in the examples.
const ruleFolder = "/etc/caddy/rules"

// writeRuleFiles writes the blocks of a page that are marked as files of ruleFolder into a folder, and returns it. For a page
// without any, those of docs/rules.md are written.
func writeRuleFiles(t *testing.T, page string) string {
	t.Helper()
	folder := t.TempDir()
	none := true
	for _, s := range manual.Snippets(t, page) {
		if file, marked := strings.CutPrefix(s.Marker, "file: "); marked {
			none = false
			must.Succeed(t, os.WriteFile(filepath.Join(folder, file), []byte(s.Text), 0o600))
		}
	}
	if none && page != "docs/rules.md" {
		return writeRuleFiles(t, "docs/rules.md")
	}
	return folder
}

// validateSnippet adapts and provisions a snippet as `caddy validate` does, without using the user's files.
func validateSnippet(t *testing.T, s manual.Snippet) error {
	t.Helper()
	page, _, _ := strings.Cut(s.Place, ":")
	s.Text = strings.ReplaceAll(s.Text, ruleFolder, writeRuleFiles(t, page))
	config := []byte(s.Text)
	if s.Language == "caddyfile" {
		text, err := whole(s)
		must.Succeed(t, err)
		adapted, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), nil)
		if err != nil {
			return err
		}
		config = adapted
	}
	var c caddy.Config
	if err := caddy.StrictUnmarshalJSON(config, &c); err != nil {
		return err
	}
	c.StorageRaw = caddyconfig.JSONModuleObject(map[string]string{"root": t.TempDir()}, "module", "file_system", nil)
	c.Logging = &caddy.Logging{Logs: map[string]*caddy.CustomLog{
		"default": {BaseLog: caddy.BaseLog{WriterRaw: json.RawMessage(`{"output": "discard"}`)}},
	}}
	return caddy.Validate(&c)
}

func TestManualsConfigurationsLoad(t *testing.T) {
	t.Setenv("REDIS_PASSWORD", "a password")
	t.Setenv("WEIR_KEY_SECRET", "a secret")
	t.Setenv("WEIR_DEFER_KEY", strings.Repeat("1", 64))
	t.Setenv("WEIR_DEFER_FORMER_KEY", strings.Repeat("2", 64))
	configurations := 0
	for name := range manualPages(t) {
		for _, s := range manual.Snippets(t, name) {
			if s.Language != "caddyfile" && (s.Language != "json" || !strings.Contains(s.Text, `"apps"`)) {
				continue
			}
			configurations++
			t.Run(s.Place, func(t *testing.T) {
				err := validateSnippet(t, s)
				why, refused := strings.CutPrefix(s.Marker, "refused: ")
				switch {
				case !refused && err != nil:
					t.Errorf("is refused: %v", err)
				case refused && err == nil:
					t.Error("is marked as refused, but it loads")
				case refused && !strings.Contains(err.Error(), why):
					t.Errorf("is refused for another reason than %q: %v", why, err)
				}
			})
		}
	}
	if configurations == 0 {
		t.Error("no configuration found")
	}
}

// found returns the matches of a pattern's group in a text, in order and without duplicates.
func found(text, pattern string) []string {
	var found []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// firstCells returns the words in code in the first column of a section's table.
func firstCells(section string) []string {
	cells := ""
	for _, m := range regexp.MustCompile(`(?m)^\| (.*?) \|`).FindAllStringSubmatch(section, -1) {
		cells += m[1] + "\n"
	}
	return found(cells, "`([a-z0-9_]+)`")
}

func TestManualHasTheSettingsThatTheCodeHas(t *testing.T) {
	reference := manual.Page(t, "docs/caddy.md")
	manual.SameWords(t, "docs/caddy.md, a zone in short", firstCells(manual.Section(t, reference, "### A zone, in short")), syntax.ZoneWords())
	manual.SameWords(t, "docs/caddy.md, the handler in short", firstCells(manual.Section(t, reference, "### The handler, in short")), handlerWords)

	const headings = "(?m)^### `([a-z0-9_]+)`$"
	for section, words := range map[string][]string{"## Zones": syntax.ZoneWords(), "## The handler": handlerWords} { // the tables have all; what takes more has a heading
		headed := found(manual.Section(t, reference, section), headings)
		if len(headed) == 0 {
			t.Errorf("docs/caddy.md has no setting below %q", section)
		}
		for _, word := range headed {
			if !slices.Contains(words, word) {
				t.Errorf("docs/caddy.md has the heading %s below %q, which is no setting of it", word, section)
			}
		}
	}
	manual.SameWords(t, "docs/caddy.md, the global option", found(manual.Section(t, reference, "## The global option"), headings), append(syntax.FieldNames(reflect.TypeFor[stores.MemoryStore]()), "rules_file", "exceptions_file"))

	redis := manual.Section(t, manual.Page(t, "docs/redis.md"), "## Settings")
	settings := strings.Split(redis, "In JSON they are")[0]
	manual.SameWords(t, "docs/redis.md, settings", found(settings, "(?m)^\\| `([a-z0-9_]+)`"), slices.DeleteFunc(slices.Clone(redisWords), isSentinelPassword))
	manual.SameWords(t, "docs/redis.md, tls", found(regexp.MustCompile("(?m)^\\| `tls` .*$").FindString(settings), "`([a-z_]+) <"), redisTLSWords)

	deferring := manual.Section(t, manual.Page(t, "docs/defer.md"), "## Settings")
	manual.SameWords(t, "docs/defer.md, settings", firstCells(deferring), deferWords)
}

// isSentinelPassword reports whether a word is sentinel_password, which shares a line of the table with the user.
func isSentinelPassword(word string) bool { return word == "sentinel_password" }

func TestManualHasTheJSONFieldsThatTheCodeHas(t *testing.T) {
	reference := manual.Page(t, "docs/caddy.md")
	zones := manual.Section(t, reference, "## Zones")
	handler := manual.Section(t, reference, "## The handler")
	check := func(what, section string, fields, settings []string) {
		for _, name := range fields { // those of settings have their names, and are in the tables
			if !slices.Contains(settings, name) && !regexp.MustCompile("JSON:[^#]*`"+name+"`").MatchString(section) {
				t.Errorf("docs/caddy.md does not say what the field %s of %s is", name, what)
			}
		}
	}
	check("a zone", zones, syntax.FieldNames(reflect.TypeFor[syntax.Zone]()), syntax.ZoneWords())
	check("the handler", handler, syntax.FieldNames(reflect.TypeFor[Handler]()), handlerWords)
}

func TestManualHasTheAlgorithmsThatTheCodeHas(t *testing.T) {
	manual.SameWords(t, "docs/algorithms.md", found(manual.Page(t, "docs/algorithms.md"), "(?m)^## ([a-z]+_[a-z_]+)$"), rate.AlgorithmNames)
}

func TestManualsLinksLead(t *testing.T) {
	underrace.OneGoroutine(t)
	pages := manualPages(t)
	for _, name := range []string{"CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"} {
		pages[name] = manual.Page(t, name)
	}
	for name, page := range pages {
		for _, link := range found(page, `\]\(([^)\s]+)\)`) {
			if strings.Contains(link, "://") {
				continue
			}
			path, anchor, _ := strings.Cut(link, "#")
			target := filepath.Join("..", filepath.Dir(name), path)
			if path == "" {
				target = filepath.Join("..", name)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: the link %s leads nowhere", name, link)
			} else if anchor != "" && !hasAnchor(manual.Page(t, strings.TrimPrefix(target, "../")), anchor) {
				t.Errorf("%s: the link %s leads to no heading", name, link)
			}
		}
	}
}

// A stranger decides in a minute: the README stays this short, and the pages behind it have the rest.
func TestTheReadmeFitsOnTwoScreens(t *testing.T) {
	page := manual.Page(t, "README.md")
	if lines := strings.Count(page, "\n"); lines > 130 {
		t.Errorf("the README has %d lines, and may have 130", lines)
	}
	if words := len(strings.Fields(page)); words > 1300 {
		t.Errorf("the README has %d words, and may have 1300", words)
	}
}

// The whole manual can be read: tables and configurations count, too.
func TestTheManualIsNoNovel(t *testing.T) {
	words := -len(strings.Fields(manual.Page(t, "README.md")))
	for _, page := range manualPages(t) {
		words += len(strings.Fields(page))
	}
	if words > 55_000 {
		t.Errorf("docs/*.md have %d words, and may have 55000", words)
	}
}

// What is told twice is told wrong once.
func TestNoParagraphStandsInTwoPages(t *testing.T) {
	first := make(map[string]string)
	for name, page := range manualPages(t) {
		for _, paragraph := range strings.Split(outsideBlocks(page), "\n\n") {
			for _, piece := range regexp.MustCompile(`(?m)^(- |\| )`).Split(paragraph, -1) { // items and rows
				piece = strings.Join(strings.Fields(piece), " ")
				if len(strings.Fields(piece)) < 12 || strings.HasPrefix(piece, "---") {
					continue
				}
				if other := first[piece]; other != "" && other != name {
					t.Errorf("%s and %s both have\n%s", other, name, piece)
				}
				first[piece] = name
			}
		}
	}
}

// What the README says of CPU is what docs/performance.md has.
func TestTheReadmesFiguresAreThoseOfThePerformancePage(t *testing.T) {
	measured := manual.Page(t, "docs/performance.md")
	figures := found(strings.Join(found(manual.Page(t, "README.md"), `(?m)^(\| CPU of .*)$`), "\n"), `\b(\d\.\d\d)\b`)
	if len(figures) < 8 {
		t.Errorf("the README has only these figures of CPU: %v", figures)
	}
	for _, figure := range figures {
		if !regexp.MustCompile(`[|×] ` + regexp.QuoteMeta(figure) + ` `).MatchString(measured) {
			t.Errorf("the README has %s, and no table of docs/performance.md", figure)
		}
	}
}

func TestEachPageHasItsContentsAndStandsInTheMap(t *testing.T) {
	linked := found(manual.Page(t, "docs/README.md"), `\]\(([a-z-]+\.md)\)`)
	for name, page := range manualPages(t) {
		if name == "README.md" || name == "docs/README.md" {
			continue
		}
		if !slices.Contains(linked, strings.TrimPrefix(name, "docs/")) {
			t.Errorf("docs/README.md does not name %s", name)
		}
		var want []string
		for _, m := range regexp.MustCompile("(?m)^## (.*)$").FindAllStringSubmatch(outsideBlocks(page), -1) {
			want = append(want, fmt.Sprintf("- [%s](#%s)", m[1], anchorOf(m[1])))
		}
		contents := strings.Join(want, "\n")
		if before, _, _ := strings.Cut(page, "\n## "); len(want) > 1 && !strings.Contains(before, "\n"+contents+"\n") {
			t.Errorf("%s has no table of contents before its first section, which would be\n%s", name, contents)
		}
	}
}

// A blank line ends a table: the rows behind it would be prose.
func TestTablesOfTheManualAreWhole(t *testing.T) {
	for name, page := range manualPages(t) {
		lines := strings.Split(outsideBlocks(page), "\n")
		for i := 2; i < len(lines)-1; i++ {
			row := func(n int) bool { return n < len(lines) && strings.HasPrefix(lines[n], "|") }
			if lines[i] == "" && row(i-1) && row(i+1) && !(row(i+2) && strings.HasPrefix(lines[i+2], "| ---")) {
				t.Errorf("%s: a blank line in a table, before %.60s", name, lines[i+1])
			}
		}
	}
}

// outsideBlocks returns a page without its fenced blocks.
func outsideBlocks(page string) string {
	return regexp.MustCompile("(?ms)^ *```.*?^ *```$").ReplaceAllString(page, "")
}

// anchorOf returns the anchor of a heading, as GitHub makes it.
func anchorOf(heading string) string {
	return strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9_ -]`).ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// hasAnchor reports whether a page has a heading with that anchor.
func hasAnchor(page, anchor string) bool {
	for _, heading := range found(page, `(?m)^#+ (.*)$`) {
		if anchorOf(heading) == anchor {
			return true
		}
	}
	return false
}

// errAcrossMinutes says that a session must be played again: Caddyfile.example counts in windows of a minute, and of six requests
// at a limit of five a minute the last passes if a new window has begun.
var errAcrossMinutes = errors.New("a minute ended while the session was played")

func TestReadmesSessionIsWhatCaddyAnswers(t *testing.T) {
	for _, name := range []string{"README.md", "docs/responses.md"} {
		t.Run(name, func(t *testing.T) {
			site, session := siteOfSession(t), ""
			for _, s := range manual.Snippets(t, name) {
				switch s.Marker {
				case "session: Caddyfile":
					site = s.Text
				case "session":
					session += s.Text
				}
			}
			if session == "" {
				t.Fatal("the page has no session")
			}
			var got string
			var err error
			for range 3 { // a session takes far less than a minute, so two in a row cannot both be across
				if got, err = playSession(t, site, session); !errors.Is(err, errAcrossMinutes) {
					break
				}
			}
			must.Succeed(t, err)
			if want := masked(session); got != want {
				t.Errorf("the page shows (masked, header fields sorted)\n%s\nand Caddy answers\n%s", want, got)
			}
		})
	}
}

// siteOfSession returns the site of Caddyfile.example, without its global options.
func siteOfSession(t *testing.T) string {
	t.Helper()
	_, site, found := strings.Cut(manual.Page(t, "Caddyfile.example"), "\n}\n")
	if !found {
		t.Fatal("Caddyfile.example has no global options")
	}
	return site
}

// playSession starts Caddy with a site on a free loopback port in place of 8080, plays the session's commands, and returns the
// session with the actual answers, masked.
func playSession(t *testing.T, site, session string) (string, error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	address := listener.Addr().String()
	_ = listener.Close()
	_, port, _ := net.SplitHostPort(address)

	if strings.Count(site, ":8080 {") != 1 {
		t.Fatal("the site is not on port 8080")
	}
	site = strings.Replace(site, ":8080 {", ":"+port+" {", 1)
	config := "{\n\tadmin off\n\tauto_https off\n\tpersist_config off\n\tdefault_bind 127.0.0.1\n\tstorage file_system " + t.TempDir() +
		"\n\tlog {\n\t\toutput discard\n\t}\n}\n" + site
	adapted, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(config), nil)
	must.Succeed(t, err)
	must.Succeed(t, caddy.Load(adapted, true))
	defer func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	}()

	transport := &http.Transport{
		DisableCompression: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) { // whichever port the session has
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	minute := time.Now().Truncate(time.Minute)
	var played strings.Builder
	for _, line := range strings.Split(session, "\n") {
		command, isCommand := strings.CutPrefix(line, "$ ")
		if !isCommand {
			continue
		}
		answer, err := playCommand(client, command)
		if err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		played.WriteString(line + "\n" + answer)
	}
	if !time.Now().Truncate(time.Minute).Equal(minute) {
		return "", errAcrossMinutes
	}
	return masked(played.String()), nil
}

var (
	forLoop  = regexp.MustCompile(`^for i in (?:([0-9 ]+)|\$\(seq (\d+)\)); do (curl .*?)(; | & )done$`)
	argument = regexp.MustCompile(`'[^']*'|\S+`)
)

// playCommand does what a curl, or a loop of them, would do, and returns what it would print. It waits for what a loop has begun in
// the background, and prints that in the order in which it ends.
func playCommand(client *http.Client, command string) (string, error) {
	loop := forLoop.FindStringSubmatch(command)
	if loop == nil {
		return playCurl(client, command)
	}
	var mu sync.Mutex
	var failed error
	answers := ""
	note := func() {
		answer, err := playCurl(client, loop[3])
		mu.Lock()
		defer mu.Unlock()
		answers += answer
		failed = errors.Join(failed, err)
	}
	var started sync.WaitGroup
	times := len(strings.Fields(loop[1]))
	if loop[2] != "" {
		times, _ = strconv.Atoi(loop[2])
	}
	for range times {
		if loop[4] == " & " {
			started.Go(note)
		} else {
			note()
		}
	}
	started.Wait()
	return answers, failed
}

// playCurl does what one curl would do.
func playCurl(client *http.Client, command string) (string, error) {
	args := argument.FindAllString(command, -1)
	request, err := http.NewRequest(http.MethodGet, "", nil)
	if err != nil {
		return "", err
	}
	request.Header.Set("Accept", "*/*")
	include, silent, format := false, false, ""
	for i := 1; i < len(args); i++ {
		switch arg := strings.Trim(args[i], "'"); {
		case arg == "-i":
			include = true
		case arg == "-s":
		case arg == "-o" && i+1 < len(args):
			i++
			silent = true
		case arg == "-H" && i+1 < len(args):
			i++
			name, value, _ := strings.Cut(strings.Trim(args[i], "'"), ": ")
			request.Header.Set(name, value)
		case arg == "-X" && i+1 < len(args):
			i++
			request.Method = args[i]
		case arg == "--json" && i+1 < len(args):
			i++
			request.Method = http.MethodPost
			request.Header.Set("Content-Type", "application/json")
			body := strings.Trim(args[i], "'")
			request.Body, request.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body)) // which curl says
		case arg == "-u" && i+1 < len(args):
			i++
			name, password, _ := strings.Cut(strings.Trim(args[i], "'"), ":")
			request.SetBasicAuth(name, password)
		case arg == "-w" && i+1 < len(args):
			i++
			format = strings.ReplaceAll(strings.Trim(args[i], "'"), `\n`, "\n")
		case strings.HasPrefix(arg, "http://"):
			if request.URL, err = request.URL.Parse(arg); err != nil {
				return "", err
			}
		default:
			return "", fmt.Errorf("this test does not know the argument %q", arg)
		}
	}
	if args[0] != "curl" || request.URL.Host == "" {
		return "", errors.New("this test plays curl and a URL only")
	}
	begun := time.Now()
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	format = strings.NewReplacer("%{http_code}", fmt.Sprint(response.StatusCode), "%header{retry-after}", response.Header.Get("Retry-After"), "%header{x-ratelimit-soft}", response.Header.Get("X-RateLimit-Soft"),
		"%{time_total}", fmt.Sprintf("%f", time.Since(begun).Seconds())).Replace(format)
	if silent {
		return format, nil
	}
	answer := strings.TrimSuffix(string(body), "\n") + "\n"
	if include {
		var head strings.Builder
		fmt.Fprintf(&head, "%s %s\r\n", response.Proto, response.Status)
		if err := response.Header.Write(&head); err != nil {
			return "", err
		}
		answer = strings.ReplaceAll(head.String(), "\r\n", "\n") + "\n" + answer
	}
	return answer + format, nil
}

var masks = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`(?m)^(Date): .*$`), "$1: …"},
	{regexp.MustCompile(`(?m)^(Content-Length|Retry-After|X-Ratelimit-Reset|X-Ratelimit-Retry-After): \d+$`), "$1: …"},
	{regexp.MustCompile(`;t=\d+`), ";t=…"},
	{regexp.MustCompile(`in \d+ seconds?`), "in … seconds"},
}

// masked replaces what differs from one minute to the next in a session, and sorts header fields.
func masked(session string) string {
	for _, m := range masks {
		session = m.pattern.ReplaceAllString(session, m.with)
	}
	lines := strings.Split(session, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "HTTP/") {
			end := i + 1
			for end < len(lines) && lines[end] != "" {
				end++
			}
			slices.Sort(lines[i+1 : end])
		}
	}
	return strings.Join(lines, "\n")
}

// What `weir convert` prints as a Caddyfile loads, in a site if it is a part of one; and so does each rule file that it prints.
func TestConvertedConfigurationsLoad(t *testing.T) {
	examples, err := filepath.Glob("../cmd/convert/testdata/*.txt")
	must.Succeed(t, err)
	loaded := 0
	for _, example := range examples {
		printed := manual.Converted(t, example)
		folder := t.TempDir()
		file := filepath.Join(folder, "ratelimit.yaml")
		config := printed + "\n"
		switch {
		case strings.Contains(printed, "\nrules:\n") || strings.Contains(printed, "\ndomain:"):
			must.Succeed(t, os.WriteFile(file, []byte(printed), 0o600))
			config = "rate_limit {\n\trules_file " + file + "\n}\n"
			if strings.Contains(printed, "\ndomain:") {
				config = strings.Replace(config, "}", "\tdescriptor remote_address {client_ip}\n}", 1)
			}
		case strings.Contains(printed, "rules_file /etc/caddy/rules/ratelimit.yaml"):
			must.Succeed(t, os.WriteFile(file, []byte("domain: shop\ndescriptors:\n- {key: remote_address, rate_limit: {unit: minute, requests_per_unit: 1}}\n- {key: user, descriptors: [{key: q, rate_limit: {unit: minute, requests_per_unit: 1}}]}\n- {key: generic_key, descriptors: [{key: path, rate_limit: {unit: minute, requests_per_unit: 1}}]}\n"), 0o600))
			config = strings.ReplaceAll(config, "/etc/caddy/rules", folder)
		case !strings.Contains(printed, "rate_limit {"):
			continue // it is for Traefik
		}
		if !strings.Contains(config, ":8080 {") {
			config = ":8080 {\n" + config + "}\n"
		}
		loaded++
		if err := validateSnippet(t, manual.Snippet{Place: "docs/rules.md:1", Language: "caddyfile", Text: config}); (err != nil) != strings.Contains(example, "refused") {
			t.Errorf("%s: %v", example, err)
		}
	}
	must.Equal(t, loaded > 8, true, "%d examples", loaded)
}
