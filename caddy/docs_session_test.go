package ratelimit

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/manual"
	"github.com/proxyweir/weir/tools/must"
)

// pagesWithSessions are the pages whose sessions are all played, with their least number.
var pagesWithSessions = map[string]int{"docs/past-the-limit.md": 6, "docs/guard.md": 1, "docs/adaptive.md": 1, "docs/defer.md": 1, "docs/keys.md": 2, "docs/responses.md": 1, "docs/single-keys.md": 1, "docs/start-caddy.md": 1, "docs/ask.md": 1, "docs/monitoring.md": 3}

// Every session of a page is played against a Caddy of its own, with the Caddyfile before it.
func TestSessionsOfTheManualAreWhatCaddyAnswers(t *testing.T) {
	for page, least := range pagesWithSessions {
		t.Run(page, func(t *testing.T) { playPage(t, page, least) })
	}
}

func playPage(t *testing.T, page string, least int) {
	caddyfile, played := "", 0
	marker := "session"
	if page == "docs/responses.md" { // whose other sessions are of the example, see TestReadmesSessionIsWhatCaddyAnswers
		marker = "session: above"
	}
	for _, s := range manual.Snippets(t, page) {
		if s.Marker == "session" && s.Marker != marker {
			continue
		}
		if s.Language == "caddyfile" && s.Marker == "" {
			caddyfile = s.Text
		}
		if s.Language != "console" || s.Marker == "" && strings.HasPrefix(s.Text, "caddy ") { // a single command is no session
			continue
		}
		if s.Marker != marker || caddyfile == "" {
			t.Errorf("%s: is not marked as a session, or there is no Caddyfile for it", s.Place)
			continue
		}
		played++
		config := caddyfile
		t.Run(s.Place, func(t *testing.T) {
			t.Parallel()
			var problem error
			for range 10 { // if the machine stalls, requests may not be simultaneous; and another process may take a port
				var played string
				if played, problem = playDocumented(t, config, s.Text); problem == nil {
					problem = sameSession(s.Text, played)
				}
				if problem == nil {
					return
				}
				t.Log(problem)
			}
			t.Error("no play was as the page shows")
		})
	}
	if played < least {
		t.Errorf("only %d sessions are there", played)
	}
}

// playDocumented starts a process of Caddy with a configuration of the manual, on other ports than the page has, plays a session,
// and returns it with the actual answers.
func playDocumented(t *testing.T, config, session string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	options, own := "", strings.TrimPrefix(config, "{\n")
	if own != config { // global options of the page's own
		options, config, _ = strings.Cut(own, "\n}\n")
		options += "\n"
	}
	config = "{\n" + options + "\tadmin localhost:2019\n\tauto_https off\n\tpersist_config off\n\tdefault_bind 127.0.0.1\n\tstorage file_system " + dir +
		"\n\tlog {\n\t\toutput discard\n\t}\n}\n" + config
	var listening, ports []string
	named := found(config, `(:(?:2019|80\d\d)\b)`)
	slices.Sort(named)
	for _, port := range slices.Compact(named) {
		listening = append(listening, freePort(t))
		ports = append(ports, port, listening[len(listening)-1])
	}
	if strings.Contains(config, documentedRedis) {
		redis := redistest.Start(t, redistest.WithConfig("appendonly yes", "appendfsync always", "maxmemory-policy noeviction"))
		ports = append(ports, documentedRedis, redis.Addr()+" {\ntimeout 20s\nread_timeout 20s\ndial_timeout 20s\n}") // which a busy machine needs
	}
	onPorts := strings.NewReplacer(ports...)
	file := filepath.Join(dir, "Caddyfile")
	must.Succeed(t, os.WriteFile(file, []byte(onPorts.Replace(config)), 0o600))
	cmd := exec.Command(os.Args[0], "run", "--config", file, "--adapter", "caddyfile")
	cmd.Env = append(os.Environ(), "WEIR_TEST_AS_CADDY=1", "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir) // see TestMain
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	stdin, err := cmd.StdinPipe()
	must.Succeed(t, err)
	must.Succeed(t, cmd.Start())
	gone := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(gone)
	}()
	transport := &http.Transport{DisableCompression: true}
	defer func() {
		transport.CloseIdleConnections()
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		<-gone
	}()
	for _, port := range listening {
		for {
			conn, err := net.Dial("tcp", "localhost"+port)
			if err == nil {
				_ = conn.Close()
				break
			}
			select {
			case <-gone:
				return "", fmt.Errorf("Caddy has ended: %s", output.String())
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	played := ""
	jobs, variables := documentedJobs{}, []string{}
	for _, part := range strings.Split("\n"+session, "\n$ ")[1:] {
		line, want, _ := strings.Cut(part, "\n")
		if assigned := assignment.FindStringSubmatch(line); assigned != nil {
			variables = append(variables, "$"+assigned[1], assigned[2])
			played += "$ " + line + "\n"
			continue
		}
		command := jobs.actual(strings.NewReplacer(variables...).Replace(line))
		answer, err := playLine(client, onPorts.Replace(command), want)
		if err != nil {
			return "", fmt.Errorf("%s: %w", line, err)
		}
		played += "$ " + line + "\n"
		if answer != "" {
			played += strings.TrimSuffix(jobs.documented(answer, want), "\n") + "\n"
		}
	}
	return played, nil
}

// documentedRedis is the address of Redis in the pages, at the end of a line. A session that has it gets a server of its own, which keeps deferred requests
// safely.
const documentedRedis = "localhost:6379"

// assignment sets a variable of the shell.
var assignment = regexp.MustCompile(`^([a-z]+)=(\S+)$`)

// idOfJob finds the ids of deferred requests, where answers have them.
var idOfJob = regexp.MustCompile(`/deferred/[a-z]+/([\w-]{22})\b`)

// documentedJobs are pairs: the id of a job on a page, and the id of the job in a play of it.
type documentedJobs [][2]string

// actual returns a command of the page, about the jobs of the play.
func (j documentedJobs) actual(command string) string {
	for _, pair := range j {
		command = strings.ReplaceAll(command, pair[0], pair[1])
	}
	return command
}

// documented returns an answer of the play, with the ids of the page. If the page shows new ids in the answer, they are those of the answer's new jobs.
func (j *documentedJobs) documented(answer, want string) string {
	shown, got := idOfJob.FindAllStringSubmatch(want, -1), idOfJob.FindAllStringSubmatch(answer, -1)
	for i := range min(len(shown), len(got)) {
		pair := [2]string{shown[i][1], got[i][1]}
		if !slices.ContainsFunc(*j, func(known [2]string) bool { return known[0] == pair[0] || known[1] == pair[1] }) {
			*j = append(*j, pair)
		}
	}
	for _, pair := range *j {
		answer = strings.ReplaceAll(answer, pair[1], pair[0])
	}
	return answer
}

// meanwhile is a command that is begun, and another that looks at what it does.
var meanwhile = regexp.MustCompile(`^\((for .* & done); sleep [0-9.]+; (.*); wait\)$`)

// longestSleep is how long a command behind a sleep is tried.
const longestSleep = 30 * time.Second

// playLine plays a line of a session, and returns what it would print. Where a command looks at what another does, or is played after a sleep, it
// does not wait for as long as the page says, but looks again until it finds what the page shows, or the other has ended.
func playLine(client *http.Client, line, want string) (string, error) {
	if both := meanwhile.FindStringSubmatch(line); both != nil {
		ended := make(chan error, 1)
		go func() {
			_, err := playCommand(client, both[1])
			ended <- err
		}()
		for {
			answer, err := playLine(client, both[2], "")
			if err != nil || sameSession(want, answer) == nil {
				return answer, errors.Join(err, <-ended)
			}
			select {
			case err := <-ended:
				return answer, err
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	if _, later, waits := strings.Cut(line, "; "); waits && strings.HasPrefix(line, "sleep ") {
		for end := time.Now().Add(longestSleep); ; {
			answer, err := playLine(client, later, "")
			if err != nil || sameSession(want, answer) == nil || time.Now().After(end) {
				return answer, err
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	command, filters, _ := strings.Cut(line, " | ")
	answer, err := playCommand(client, command)
	if err == nil && filters != "" {
		answer, err = filtered(answer, strings.Split(filters, " | "))
	}
	return answer, err
}

// freePort returns a port on which nothing listens, as ":port".
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer func() { _ = listener.Close() }()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return ":" + port
}

// filtered does what grep ^…, sort and uniq -c do.
func filtered(text string, filters []string) (string, error) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for _, filter := range filters {
		word, prefix, _ := strings.Cut(strings.ReplaceAll(filter, "'", ""), " ^")
		switch {
		case word == "grep" && prefix != "":
			lines = slices.DeleteFunc(lines, func(line string) bool { return !strings.HasPrefix(line, prefix) })
		case filter == "sort":
			slices.Sort(lines)
		case filter == "uniq -c":
			counted := []string{}
			for i := 0; i < len(lines); {
				n := i
				for n < len(lines) && lines[n] == lines[i] {
					n++
				}
				counted = append(counted, fmt.Sprintf("%7d %s", n-i, lines[i]))
				i = n
			}
			lines = counted
		default:
			return "", fmt.Errorf("this test does not know the filter %q", filter)
		}
	}
	return strings.Join(lines, "\n") + "\n", nil
}

var (
	waitOf        = regexp.MustCompile(`(?:^(?:Retry-After|X-Ratelimit-Reset|X-Ratelimit-Retry-After): |;t=|in )(\d+)`)
	insignificant = []*regexp.Regexp{regexp.MustCompile(`^Date: .*$`), regexp.MustCompile(`after [0-9.]+ s`), regexp.MustCompile(`"id":"(?:\d[^"]*|[\w-]{16})"`),
		regexp.MustCompile(`"(?:due|accepted|ended|until)":"2[0-9-]*T[0-9:.]*Z"`), regexp.MustCompile(`"position":[1-9]\d*`), regexp.MustCompile(`^Content-Length: 2\d\d$`), // of an answer with those
		regexp.MustCompile(`"(?:retry_after_seconds|reset_seconds|reset|delay)":[0-9.]+`),
		regexp.MustCompile(`^weir_guard_baseline_seconds\S* 0\.5[0-9]*$`)}
)

// sameSession says how the answers differ from a session. It ignores dates, durations, waits that are up to ten seconds shorter,
// and the order of header fields.
func sameSession(want, got string) error {
	wanted, gotten := lineByLine(want), lineByLine(got)
	for i := range max(len(wanted), len(gotten)) {
		if i >= len(wanted) || i >= len(gotten) || !sameLine(wanted[i], gotten[i]) {
			return fmt.Errorf("the page shows\n%s\nand Caddy answers\n%s", want, got)
		}
	}
	return nil
}

func lineByLine(session string) []string {
	lines := strings.Split(strings.TrimSuffix(session, "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
		if strings.HasPrefix(line, "HTTP/") {
			end := i + slices.Index(append(lines[i:], ""), "")
			slices.Sort(lines[i+1 : end])
		}
	}
	return lines
}

func sameLine(want, got string) bool {
	for _, pattern := range insignificant {
		want, got = pattern.ReplaceAllString(want, ""), pattern.ReplaceAllString(got, "")
	}
	wanted, gotten := waitOf.FindAllStringSubmatch(want, -1), waitOf.FindAllStringSubmatch(got, -1)
	if len(wanted) != len(gotten) {
		return false
	}
	for i := range wanted {
		w, _ := strconv.Atoi(wanted[i][1])
		g, _ := strconv.Atoi(gotten[i][1])
		if g > w || g < min(w, max(1, w-10)) {
			return false
		}
	}
	return waitOf.ReplaceAllString(want, "") == waitOf.ReplaceAllString(got, "")
}

func TestADifferentSessionIsFound(t *testing.T) {
	const session = "$ curl -i http://localhost:8080/\nHTTP/1.1 429 Too Many Requests\nRetry-After: 60\nServer: Caddy\n\nTry again in 60 seconds.\n"
	for change, same := range map[[2]string]bool{
		{"", ""}:                               true,
		{"Retry-After: 60", "Retry-After: 58"}: true,
		{"Retry-After: 60\nServer: Caddy", "Server: Caddy\nRetry-After: 60"}: true,
		{"429", "200"}:                               false,
		{"Retry-After: 60", "Retry-After: 1"}:        false,
		{"Retry-After: 60", "Retry-After: 61"}:       false,
		{"Retry-After: 60\n", ""}:                    false,
		{"Server: Caddy\n", "Server: Caddy\nX: y\n"}: false,
		{"in 60 seconds", "in 49 seconds"}:           false,
		{"Try", "Do not try"}:                        false,
	} {
		if err := sameSession(session, strings.Replace(session, change[0], change[1], 1)); (err == nil) != same {
			t.Errorf("%q in place of %q: %v", change[1], change[0], err)
		}
	}
}
