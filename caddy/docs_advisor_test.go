package ratelimit

import (
	"flag"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/proxyweir/weir/advisor"
	"github.com/proxyweir/weir/tools/manual"
)

const advisorPage = "docs/advisor.md"

var writeAdvisors = flag.Bool("advisors", false, "write what the session of docs/advisor.md answers into the page")

// The page's configuration is read, and its session has the command's actual answers on a demand with a season. `go test ./caddy -run TheAdvisorsPage -advisors` writes them.
func TestTheSessionOfTheAdvisorsPageIsWhatTheCommandAnswers(t *testing.T) {
	folder, page := t.TempDir(), manual.Page(t, advisorPage)
	for _, s := range manual.Snippets(t, advisorPage) {
		switch {
		case s.Marker != "advisor":
		case s.Language == "yaml":
			text := strings.Replace(s.Text, "http://127.0.0.1:9090", SeasonalPrometheus(t), 1)
			if err := os.WriteFile(filepath.Join(folder, "advisor.yaml"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := advisor.Parse(s.Place, []byte(s.Text)); err != nil {
				t.Error(err)
			}
		default:
			played := playReplay(t, folder, s.Text)
			if *writeAdvisors {
				page = strings.Replace(page, "```console\n"+s.Text+"```", "```console\n"+played+"```", 1)
			} else if played != s.Text {
				t.Errorf("%s: the page shows\n%s\nand the command answers\n%s", s.Place, s.Text, played)
			}
		}
	}
	if *writeAdvisors {
		if err := os.WriteFile("../"+advisorPage, []byte(page), 0o644); err != nil { //nolint:gosec // a page for all
			t.Fatal(err)
		}
	}
}

// SeasonalPrometheus serves query_range of demand with a season of a day: from 4 to 16 requests a second.
func SeasonalPrometheus(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start, _ := strconv.ParseFloat(r.FormValue("start"), 64)
		end, _ := strconv.ParseFloat(r.FormValue("end"), 64)
		step, _ := strconv.ParseFloat(r.FormValue("step"), 64)
		var values []string
		for at := start; step > 0 && at <= end; at += step {
			values = append(values, fmt.Sprintf(`[%f,"%f"]`, at, 10+6*math.Sin(2*math.Pi*at/86400)))
		}
		_, _ = fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[%s]}]}}`, strings.Join(values, ","))
	}))
	t.Cleanup(server.Close)
	return server.URL
}
