package e2e

import (
	"bytes"
	"fmt"
	"image/color"
	"image/png"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/proxyweir/weir/advisor"
	"github.com/proxyweir/weir/tools/must"
)

// axe returns the text of axe-core, which AXE or scripts/axe names.
var axe = sync.OnceValues(func() (string, error) {
	find := exec.Command("../scripts/axe")
	find.Stderr = os.Stderr
	name, err := find.Output()
	if err != nil {
		return "", fmt.Errorf("axe-core is not there: scripts/axe, which gets it: %w", err)
	}
	text, err := os.ReadFile(strings.TrimSpace(string(name)))
	return string(text), err
})

// accessible checks what is shown with axe-core: it finds nothing but what begins with a text of allowed, such as an impact.
func (b *browser) accessible(what string, allowed ...string) {
	b.t.Helper()
	text, err := axe()
	must.Succeed(b.t, err)
	for _, finding := range js[[]string](b, text+`;axe.run(document, {preload: false, resultTypes: ["violations"]}).then((found) => found.violations
		.map((v) => v.impact + " " + v.id + ": " + v.help + "; " + v.nodes.map((n) => n.target.join(" ") + " " + n.any.map((one) => one.message).join(" ")).join("; ").slice(0, 600)))`) {
		if !slices.ContainsFunc(allowed, func(of string) bool { return strings.HasPrefix(finding, of) }) {
			b.t.Errorf("%s: %s", what, finding)
		}
	}
}

// looks are the windows and colour schemes in which pages must be usable.
var looks = func() (all []look) {
	for _, width := range []int64{390, 1440} {
		for _, scheme := range []string{"light", "dark"} {
			all = append(all, look{fmt.Sprintf("%d %s", width, scheme), [2]int64{width, 844}, scheme})
		}
	}
	return all
}()

type look struct {
	name   string
	size   [2]int64
	scheme string
}

// seen checks a page as it is.
func (b *browser) seen(what string) {
	b.t.Helper()
	b.fits(what)
	b.accessible(what)
}

// shows checks that one sees which element has the focus.
func (b *browser) shows() {
	b.t.Helper()
	if hidden := js[string](b, `((e) => [getComputedStyle(e), getComputedStyle(e, "::after")].some((s) => s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2) ? "" : e.outerHTML.slice(0, 200))(document.activeElement)`); hidden != "" {
		b.t.Errorf("nothing shows that this has the focus: %s", hidden)
	}
}

func TestThePageIsForEveryone(t *testing.T) {
	for _, l := range looks {
		t.Run(l.name, func(t *testing.T) {
			a := startAPI(t)
			b := open(t, pageOf(t, a.addr), l.size, "status of 502")
			b.prefers(l.scheme)
			b.says("#none", "No limit is in force")
			b.seen("empty")
			a.is(func() {
				a.asOfAShop()
				a.advice = adviceOn("shop/login")
				a.deferred = []map[string]any{{"rule": "api/exports", "accepting": true}}
				a.jobs = []map[string]any{{"id": "job-of-22-letters", "status": "waiting", "accepted": a.now, "attempts": 0, "position": 1, "bytes": 1}}
				a.excepted = []map[string]any{{"rule": "shop/login", "key": []string{"203.0.113.41"}, "id": keyID([]string{"203.0.113.41"}), "kind": "limit", "limit": "+1000",
					"until": a.now.Add(3 * time.Hour), "made": a.now, "note": "launch", "by": "ann@ops"}}
			})
			b.polled(a, 10)
			b.says("#excepted-list", "launch")
			// Each plot says its unit and its time: in the head of the column or, where there is none, below the plot.
			b.says(map[bool]string{true: "#rules .scale", false: ".heads"}[l.size[0] < 672], "requests")
			b.until(`[...document.querySelectorAll(".plot svg")].every((e) => e.getAttribute("aria-label").startsWith("requests per second in the last 5 minutes: up to "))`)
			b.seen("rules")
			b.click(row("shop/login") + " h3 button")
			b.says(row("shop/login")+" .by-rejections", "203.0.113.41")
			b.click("#explain > summary")
			b.do(chromedp.SendKeys(chromedp.CSS("#x-url"), "https://example.com/login"), chromedp.KeyEvent(kb.Enter))
			b.says("#explained .verdict", "would be rejected")
			b.click("#jobs > summary")
			b.click("#jobs-form button")
			b.says("#jobs-list", "waiting")
			b.seen("open")
			b.click(row("shop/login") + " .by-rejections button.key")
			b.says("#key-state", "3 of 5")
			b.click("[data-do=block]")
			b.seen("dialog")
			b.do(chromedp.KeyEvent(kb.Escape))
			a.is(func() { a.down = true })
			b.says("#outage", "Caddy does not answer")
			b.seen("outage")
		})
	}
}

// The page of a site, which only shows.
func TestThePageOfASiteIsForEveryone(t *testing.T) {
	c := startCaddy(t, `rate_limit_page
	rate_limit /up 1000/1h
	respond /up ok`)
	answer, err := http.Get("http://" + c.addr + "/up")
	must.Succeed(t, err)
	must.Succeed(t, answer.Body.Close())
	for _, l := range looks {
		t.Run(l.name, func(t *testing.T) {
			b := open(t, "http://"+c.addr+"/rate_limit", l.size)
			b.prefers(l.scheme)
			b.click("#rules h3 button")
			b.until("document.querySelector('.by-requests button.key') !== null")
			b.seen("a rule")
			b.click(".by-requests button.key")
			b.says("#key-state", "of 1,000")
			b.seen("a key")
		})
	}
}

// A dialog keeps the focus, and gives it back to what opened it; if that is gone, to the list.
func TestDialogsKeepTheFocusAndGiveItBack(t *testing.T) {
	a := startAPI(t)
	a.asOfAShop()
	a.is(func() {
		a.excepted = []map[string]any{{"rule": "shop/login", "key": []string{"203.0.113.41"}, "id": keyID([]string{"203.0.113.41"}), "kind": "limit", "limit": "+1000", "until": a.now.Add(3 * time.Hour), "made": a.now}}
	})
	b := open(t, pageOf(t, a.addr), phone)
	b.click(row("shop/login") + " h3 button")
	b.until("document.querySelectorAll('.by-rejections button.key').length === 5")
	// From top to bottom: on a phone all is in one column.
	js[bool](b, "(document.activeElement.blur(), document.body.tabIndex = -1, document.body.focus(), true)")
	last := 0.0
	for range js[int](b, `[...document.querySelectorAll("input, select, textarea, button, summary, [tabindex='0']")].filter((e) => e.checkVisibility() && !e.closest("dialog")).length`) {
		b.do(chromedp.KeyEvent(kb.Tab))
		b.shows()
		place := js[[]float64](b, "((r) => [r.top + scrollY, r.bottom + scrollY])(document.activeElement.getBoundingClientRect())")
		if place[1] < last {
			t.Errorf("Tab goes up to %s", js[string](b, "document.activeElement.outerHTML.slice(0, 200)"))
		}
		last = place[0]
	}
	b.do(chromedp.Focus(chromedp.CSS(".by-rejections button.key")), chromedp.KeyEvent(kb.Enter))
	b.says("#key-state", "3 of 5")
	inside := make(map[string]bool)
	for range 9 { // there are 7
		b.do(chromedp.KeyEvent(kb.Tab))
		if where := js[string](b, "document.activeElement === document.body ? '' : document.querySelector('#keybox').contains(document.activeElement) ? document.activeElement.textContent : 'outside'"); where != "" {
			inside[where] = true
			b.shows()
		}
	}
	if inside["outside"] || !inside["Close"] || !inside["Block …"] || !inside["Give units back …"] {
		t.Errorf("Tab reaches in the dialog: %v", inside)
	}
	b.do(chromedp.KeyEvent(kb.Escape))
	b.until("document.activeElement.matches('.by-rejections button.key')")
	// The list has no such line any more when the dialog is closed, nor the key a limit to end, so that its button is gone, too.
	b.do(chromedp.Focus(chromedp.CSS("#excepted-list button")), chromedp.KeyEvent(kb.Enter))
	b.says("#confirm-text", "End the limit")
	b.do(chromedp.Focus(chromedp.CSS("#confirm-no")), chromedp.KeyEvent(kb.Enter))
	b.until("document.activeElement.dataset.do === 'end'")
	b.click("[data-do=end]")
	b.click("#confirm-yes")
	b.until("document.querySelector('#excepted').hidden && document.activeElement.id === 'key-close'")
	b.do(chromedp.KeyEvent(kb.Escape))
	b.until("document.activeElement.id === 'list-title'")
}

func TestReportsAreForEveryone(t *testing.T) {
	dir := t.TempDir()
	program, err := caddyProgram()
	must.Succeed(t, err)
	rules := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.Succeed(t, os.WriteFile(path, []byte("rules:\n  - name: pages\n    key: [client_ip]\n"+text), 0o600))
		return path
	}
	command := exec.Command(program, "rate-limit", "replay", "--suggest", "--html", filepath.Join(dir, "replay.html"),
		"--rules", rules("now.yaml", "    limit: 20/1m\n    algorithm: fixed_window\n"), "--candidate", rules("candidate.yaml", "    limit: 10/1m\n    algorithm: token_bucket\n    burst: 30\n"),
		"../replay/testdata/pages.log.gz")
	text, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	file, err := os.Create(filepath.Join(dir, "advisor.html"))
	must.Succeed(t, err)
	must.Succeed(t, aDryRun().WriteHTML(file))
	must.Succeed(t, file.Close())
	example, err := os.ReadFile("../examples/defer/index.html")
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "example.html"), example, 0o600))
	s := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(s.Close)
	for _, name := range []string{"replay.html", "advisor.html", "example.html"} {
		for _, l := range looks {
			t.Run(name+" "+l.name, func(t *testing.T) {
				b := open(t, s.URL+"/"+name, l.size)
				b.alone = true
				b.prefers(l.scheme)
				b.until(`[...document.querySelectorAll("svg[role=img]")].every((e) => e.previousElementSibling.matches("p.axis") && e.nextElementSibling.matches("p.axis"))`)
				b.seen("report")
			})
		}
	}
}

// aDryRun is a report with all that its page draws.
func aDryRun() *advisor.Report {
	from := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	rule := advisor.RuleReport{Rule: "tenant-with-a-long-name/api", Limit: "600/1m", Requests: 600, Advised: 40, Thresholds: 3,
		Abstained: map[string]int{"no better than the last value": 12}, Judged: 200, InBand: 0.96, OverConfigured: 0.2, OverAdvised: 0.05}
	for i := range 288 {
		mean := 400 + 300*math.Sin(float64(i)/30)
		demand := mean + 60*math.Sin(float64(i)*1.7)
		rule.Points = append(rule.Points, advisor.Point{Time: from.Add(time.Duration(i) * 5 * time.Minute), Demand: &demand, Forecast: &advisor.Band{Mean: mean, Lower: mean * 0.8, Upper: mean * 1.3},
			Limit: int64(math.Max(600, mean*1.4))})
	}
	return &advisor.Report{From: from, To: from.Add(24 * time.Hour), Interval: 300, Horizon: 600, Rules: []advisor.RuleReport{rule}}
}

// A picture has its own ground, so that it is readable on every page, and no white one on a dark page. In grey its lines differ from the ground.
func TestPicturesFollowTheColourScheme(t *testing.T) {
	names, err := filepath.Glob("../examples/*/*.svg")
	must.Succeed(t, err)
	deeper, err := filepath.Glob("../docs/*/*/*.svg")
	must.Succeed(t, err)
	names = append(names, deeper...)
	if len(names) < 5 {
		t.Fatalf("there are %q", names)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name := r.FormValue("picture"); name != "" {
			http.ServeFile(w, r, name)
			return
		}
		fmt.Fprint(w, `<!doctype html><meta name="color-scheme" content="light dark"><link rel="icon" href="data:,"><img>`)
	}))
	t.Cleanup(s.Close)
	b := open(t, s.URL, [2]int64{800, 800})
	for _, name := range names {
		for scheme, light := range map[string]bool{"light": true, "dark": false} {
			b.prefers(scheme)
			js[bool](b, "new Promise((done) => { const e = document.querySelector('img'); e.onload = () => done(true); e.width = 700; e.src = '/?picture="+url.QueryEscape(name)+"&"+scheme+"'; })")
			shown, err := chromedp.Run(b.ctx, chromedp.Screenshot(chromedp.CSS("img")))
			must.Succeed(t, err)
			picture, err := png.Decode(bytes.NewReader(shown))
			must.Succeed(t, err)
			var bright, dark, all int
			for x := range picture.Bounds().Dx() {
				for y := range picture.Bounds().Dy() {
					grey := color.GrayModel.Convert(picture.At(x, y)).(color.Gray).Y
					all++
					if grey > 200 {
						bright++
					} else if grey < 90 {
						dark++
					}
				}
			}
			ground, lines := bright, dark
			if !light {
				ground, lines = dark, bright
			}
			if 2*ground < all || 500*lines < all {
				t.Errorf("%s, %s: of %d points %d are like the ground, %d differ from it", name, scheme, all, ground, lines)
			}
		}
	}
}
