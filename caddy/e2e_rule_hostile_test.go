package ratelimit_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
		{"a pipe", "", "is not a regular file"},
		{"a folder", "", "is a directory"},
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
