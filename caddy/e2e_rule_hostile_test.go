package ratelimit_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Files that are no rule files, or would take very long to read, are refused at start. If they replace a file, they change nothing.
func TestHostileFilesAreRefusedAndChangeNothing(t *testing.T) {
	bomb := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c <= 'z'; c++ {
		bomb += fmt.Sprintf("%c: &%c [*%[3]c, *%[3]c, *%[3]c, *%[3]c, *%[3]c, *%[3]c, *%[3]c, *%[3]c, *%[3]c, *%[3]c]\n", c, c, c-1)
	}
	for _, test := range []struct{ name, content, why string }{
		{"10 MB", rulesOf(good) + strings.Repeat("# filler\n", 10<<20/9), "has more than 8 MB"},
		{"a YAML bomb", bomb, "anchors are not taken"},
		{"lists in lists", "rules: " + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000), ""},
		{"descriptors in descriptors", "domain: d\ndescriptors: " + strings.Repeat("[{key: k, descriptors: ", 500) + "[]" + strings.Repeat("}]", 500), "deep"},
		{"maps by indentation", "domain: d\n" + func() (s string) {
			for i := range 2000 {
				s += strings.Repeat(" ", i) + "descriptors:\n"
			}
			return s
		}(), ""},
		{"a million items", "rules: [" + strings.Repeat("a,", 1_000_001) + "a]", "more than 1000000 values"},
		{"no text", "\x00\x01\x02\xff", "a.yaml:1:1: "},
		{"a pipe", "", "is not a regular file"},
		{"a folder", "", "is a directory"},
		{"a link to itself", "", "too many levels of symbolic links"},
		{"a device", "", "is not a regular file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			site := strings.Replace(byFiles(""), "*.yaml", "a.yaml", 1)
			place := func(s *server) {
				path := filepath.Join(s.dir, "rules", "a.yaml")
				if test.content != "" { // in one step, since a missing file would be another problem
					s.put("a.yaml", test.content)
					return
				}
				_ = os.Remove(path)
				var err error
				switch test.name {
				case "a pipe":
					err = makePipe(path)
				case "a folder":
					err = os.Mkdir(path, 0o700)
				case "a link to itself":
					err = os.Symlink("a.yaml", path)
				case "a device":
					err = os.Symlink("/dev/zero", path)
				}
				if errors.Is(err, errors.ErrUnsupported) {
					t.Skip(err)
				} else if err != nil {
					t.Fatal(err)
				}
			}
			s := startFiles(t, site, "a.yaml", rulesOf(versionOf(1), good))
			s.admit(2, "/")
			place(s)
			eventually(t, "it is refused", func() bool { return len(s.logs(saysRefused)) > 0 })
			if told := s.logs(saysRefused)[0]; !strings.Contains(fmt.Sprintf("%v:%v:%v: %v", told["file"], told["line"], told["column"], told["problem"]), test.why) || len(fmt.Sprint(told)) > 2000 {
				t.Errorf("log: %.2000s, want it to say %q", fmt.Sprint(told), test.why)
			}
			s.awaitVersion(1)
			s.admit(1, "/")
			s.reject("/")
			if why := s.refused(s.caddyfile("", ":PORT {\n"+site+"\nheader X-Other yes\n}")); !strings.Contains(why, "rules_file: ") || !strings.Contains(why, test.why) || len(why) > 4000 {
				t.Errorf("refused with %.2000q, want it to say %q", why, test.why)
			}
			s.reject("/")
			if n := len(s.logs(saysRefused)); n > 11 {
				t.Errorf("%d lines in the log", n)
			}
			if err := os.RemoveAll(filepath.Join(s.dir, "rules", "a.yaml")); err != nil {
				t.Fatal(err)
			}
			s.put("a.yaml", rulesOf(versionOf(2), strings.Replace(good, "3/", "4/", 1)))
			s.awaitVersion(2)
			s.admit(1, "/")
			s.reject("/")
		})
	}
}

// manyRules returns a file with n rules, each for one path, with that limit.
func manyRules(n, limit int) string {
	var b strings.Builder
	b.WriteString(rulesOf(versionOf(limit)))
	for i := range n {
		fmt.Fprintf(&b, "  - {name: rule-%d, match: {paths: [/rule/%d]}, limit: %d/366d}\n", i, i, limit)
	}
	return b.String()
}

// manyDescriptors returns a file with n descriptors with that limit.
func manyDescriptors(n, limit int) string {
	var b strings.Builder
	b.WriteString("domain: many\ndescriptors:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {key: client, value: client-%d, rate_limit: {unit: year, requests_per_unit: %d}}\n", i, limit)
	}
	return b.String()
}

func TestTenThousandRulesAndDescriptorsReloadUnderLoad(t *testing.T) {
	n, edits := 10_000, 5
	if raceDetector {
		n = 2_000
	}
	s := startFiles(t, byFiles("descriptor client {header.X-Client}"), "rules.yaml", manyRules(n, 1000), "descriptors.yaml", manyDescriptors(n, 1000))
	s.awaitVersion(1000)
	s.admit(10, fmt.Sprintf("/rule/%d", n-1))
	s.admit(10, "/", "X-Client", fmt.Sprintf("client-%d", n-1))
	s.do("/", "X-Client", "client-x").want(t, "RateLimit", "-")

	var asked atomic.Int64
	var clients sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		client := s.newClient(nil)
		clients.Go(func() {
			defer client.CloseIdleConnections()
			for {
				select {
				case <-done:
					return
				default:
				}
				i := asked.Add(1)
				r, err := s.once(client, fmt.Sprintf("/rule/%d", i%10), "X-Client", fmt.Sprintf("client-%d", i%10))
				if err != nil || r.status != http.StatusOK && r.status != http.StatusTooManyRequests || strings.Count(r.header.Get("RateLimit"), ";r=") != 2 {
					t.Errorf("a request was lost: status %d, %v, %v", r.status, err, r.header)
					return
				}
			}
		})
	}
	for i := range edits {
		s.put("descriptors.yaml", manyDescriptors(n, 1001+i))
		s.put("rules.yaml", manyRules(n, 1001+i))
		s.awaitVersion(1001 + i)
	}
	close(done)
	clients.Wait()
	for _, request := range [][]string{{fmt.Sprintf("/rule/%d", n-1)}, {"/", "X-Client", fmt.Sprintf("client-%d", n-1)}} {
		if r := s.do(request[0], request[1:]...); r.remaining(t) != 1000+edits-11 {
			t.Errorf("%q: %d remaining, want what 11 requests leave of %d", request, r.remaining(t), 1000+edits)
		}
	}
	t.Logf("%d requests", asked.Load())
	s.said(0, saysRefused, saysAfresh)
}
