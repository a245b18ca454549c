package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/proxyweir/weir/tools/must"
)

// advisorServer is an advisor that says what a test has it say.
type advisorServer struct {
	*httptest.Server

	mu     sync.Mutex
	rules  string // of its documents, in JSON
	lasts  time.Duration
	answer string // in place of a document, if not empty
	serial int64
}

func startAdvisor(t testing.TB) *advisorServer {
	t.Helper()
	a := &advisorServer{lasts: time.Hour}
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

// says has the advisor answer with a document of these rules from now on.
func (a *advisorServer) says(rules string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rules, a.answer = rules, ""
	a.serial = max(a.serial+1, time.Now().UnixMilli())
}

// garbles has the advisor answer with a text.
func (a *advisorServer) garbles(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answer = text
}

func (a *advisorServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.answer != "" {
		_, _ = w.Write([]byte(a.answer))
		return
	}
	if a.serial == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	etag := fmt.Sprintf(`"%d"`, a.serial)
	w.Header().Set("ETag", etag)
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	issued := time.UnixMilli(a.serial).UTC()
	fmt.Fprintf(w, `{"version":1,"serial":%d,"config":%q,"issued_at":%q,"effective_at":%q,"expires_at":%q,"model":{"name":"test","horizon_seconds":600,"skill_vs_last":0.1},"rules":[%s]}`,
		a.serial, r.Header.Get("Weir-Config"), issued.Format(time.RFC3339), issued.Format(time.RFC3339), issued.Add(a.lasts).Format(time.RFC3339), a.rules)
}

// startAdvisedCaddy starts a Caddy with an admin endpoint and an advisor, whose rule api steps each second as far as it is advised.
func startAdvisedCaddy(t testing.TB, admin, advisor, settings string) *caddy {
	t.Helper()
	return startCaddyWithGlobal(t, admin, "rate_limit {\nadvisor "+advisor+" {\ninterval 1s\n"+settings+"\n}\n}",
		"rate_limit /api {\nzone api {\nlimit 100/1h\nadapt {\nfloor 50/1h\nceiling 200/1h\nstep 100% 1s\n}\n}\n}\nrespond /api ok\nrespond /up ok")
}

// limit returns the limit that a request is told.
func (c *caddy) limit(t testing.TB, path string) string {
	t.Helper()
	answer, err := c.try(path)
	if err != nil {
		t.Fatal(err)
	}
	return answer.header.Get("X-RateLimit-Limit")
}

// advised returns the selector of a rule's element in the section on advice.
func advised(rule string) string { return fmt.Sprintf("li[data-advised=%q]", rule) }

// A page on a phone shows what the advisor of a real Caddy advises, and an operator freezes and reverts the limit.
func TestThePageShowsAdviceAndOperatorsFreezeAndRevertIt(t *testing.T) {
	admin, advisor := freeAddr(), startAdvisor(t)
	advisor.says(`{"rule":"api","limit":{"requests":180},"reason":"growth","forecast":{"mean":120.4,"lower":90,"upper":150,"quantile":0.99}}`)
	c := startAdvisedCaddy(t, admin, advisor.URL, "mode apply\ngates bounds")
	b := open(t, pageOf(t, admin), phone)
	api := advised("api")
	b.says("#advice-state .good", "Advice changes limits")
	b.says("#advice-state .good", "The advisor answers")
	b.says("#advice-state .good", fmt.Sprint("Document ", advisor.serial))
	b.says(api, "in force180/1h · sliding window counter")
	b.says(api, "configured100/1h · sliding window counter")
	b.says(api, fmt.Sprintf("advice %d, growth", advisor.serial))
	b.says(api, "target180/1h")
	b.says(api, "floor to ceiling50 to 200/1h")
	b.says(api, "forecast120 (90 to 150)/1h, of a key at 99 % of them")
	b.says(api, "advice holds until")
	b.says(row("api")+" .chip", "moved by advice; configured: 100/1h sliding_window_counter")
	b.fits("advice")
	must.Equal(t, c.limit(t, "/api"), "180", "clients are told a limit of")

	// It says why the advisor's answers are refused, and that it is gone.
	advisor.garbles("garbage")
	b.says("#advice-state .bad", "The advisor's last answer was refused: malformed")
	b.says("#advice-state", "since the start: ")
	b.says("#advice-state", "× malformed")
	advisor.garbles("")

	// It says why the advisor abstains.
	advisor.says(`],"abstained":[{"rule":"api","reason":"skill"}`)
	b.says(api, "has nothing for this rule (skill: forecasts were not better than simpler ones)")
	advisor.says(`{"rule":"api","limit":{"requests":180},"reason":"growth","forecast":{"mean":120.4,"lower":90,"upper":150,"quantile":0.99}}`)
	b.says(api, "in force180/1h")

	// Freeze: nothing happens before it is confirmed, or if it is cancelled.
	b.says(api+" .freeze", "Freeze …")
	b.click(api + " .freeze")
	b.says("#advice-text", "Freeze the limit of api?")
	b.fits("a question on advice")
	b.click("#advice-no")
	b.until("!document.querySelector('#advicebox').open && document.activeElement.matches('button.freeze')")
	b.click(api + " .freeze")
	b.click("#advice-yes")
	b.says("#advice-said", "The limit is frozen.")
	b.click("#advice-close")
	b.says(api, "frozen by hand")
	b.says(api, "frozen until")
	b.says(api, ", in ")
	advisor.says(`{"rule":"api","limit":{"requests":999},"reason":"growth"}`)
	b.says("#advice-state .good", fmt.Sprint("Document ", advisor.serial))
	must.Equal(t, c.limit(t, "/api"), "180", "while it is frozen clients are told a limit of")
	b.says(api+" .freeze", "Unfreeze …")
	b.click(api + " .freeze")
	b.says("#advice-text", "Unfreeze the limit of api?")
	b.click("#advice-yes")
	b.says("#advice-said", "The limit follows advice again.")
	b.click("#advice-close")
	b.says(api, "in force200/1h")
	b.says(api, "clamped1 × ceiling")

	b.click(api + " .revert")
	b.says("#advice-text", "Revert the limit of api?")
	b.click("#advice-yes")
	b.says("#advice-said", "The configured limit is in force.")
	b.click("#advice-close")
	b.says(api, "reverted by hand")
	b.says(api, "in force100/1h")
	must.Equal(t, c.limit(t, "/api"), "100", "after it was reverted clients are told a limit of")
	advisor.Close()
	b.says("#advice-state .bad", "The advisor does not answer")
}

func TestThePageSaysWhatAnObservedAdvisorWouldChange(t *testing.T) {
	admin, advisor := freeAddr(), startAdvisor(t)
	c := startAdvisedCaddy(t, admin, advisor.URL, "gates bounds")
	b := open(t, pageOf(t, admin), desktop)
	b.says("#advice-state", "Advice is only observed")
	b.says("#advice-state .warn", "No advice yet")
	advisor.says(`{"rule":"api","limit":{"requests":180},"reason":"growth"}`)
	b.says(advised("api"), "would be in force180/1h")
	b.says(advised("api"), "in force100/1h")
	must.Equal(t, c.limit(t, "/api"), "100", "clients are told a limit of")
	if text := b.text(row("api")); strings.Contains(text, "moved by advice") {
		t.Errorf("the rule's row says: %s", text)
	}
}

// adviceOn is an answer about rules whose names and texts are odd.
func adviceOn(rules ...string) map[string]any {
	of := []any{}
	for _, rule := range rules {
		limit := map[string]any{"requests": 1000000000, "burst": 1000000000, "algorithm": "sliding_window_counter"}
		of = append(of, map[string]any{"rule": rule, "configured": limit, "in_force": limit, "target": 1000000000, "floor": 1, "ceiling": 1000000000, "why": "frozen",
			"text": "<img src=x onerror=window.hacked=1>\u202e", "until": "2026-11-21T23:30:00Z", "walks_back_seconds": 90, "above": "keys above 40 requests in 10s get 31.6",
			"clamped": map[string]int{"ceiling": 3, "floor": 0}, "advice": map[string]any{"forecast": map[string]any{"mean": 1e12, "lower": 0, "upper": 1e12}}})
	}
	return map[string]any{"mode": "apply", "gates": "full", "advisor": "https://" + strings.Repeat("long.", 30) + "example", "rules": of,
		"refused": map[string]int{"unavailable": 1000000, "malformed": 2},
		"poll":    map[string]any{"polls": 9, "failures": 3, "reason": "malformed", "detail": "<b>\u202e" + strings.Repeat("x", 500), "last_success": "2026-11-21T22:00:00Z"}}
}

func TestThePageShowsOddAdviceAndErrorsAndIsUsedByKeyboard(t *testing.T) {
	for name, size := range map[string][2]int64{"on a phone": phone, "on a desk": desktop} {
		t.Run(name, func(t *testing.T) {
			a := startAPI(t)
			a.asOfAShop()
			b := open(t, pageOf(t, a.addr), size, "status of 400", "status of 404")
			b.says("#live", "live, ")
			b.until("document.querySelector('#advice').hidden") // without an advisor
			long := strings.Repeat("n", 64) + "/" + strings.Repeat("r", 64)
			var rules []string
			for i := range 60 {
				rules = append(rules, fmt.Sprintf("tenant/%02d", i))
			}
			a.is(func() { a.advice = adviceOn(append([]string{long}, rules...)...) })
			b.says("#advice-state .bad", "The advisor's last answer was refused: malformed")
			b.says("#advice-state .bad", "3 in a row · last success 30 min")
			b.says("#advice-state", "1,000,000 × unavailable")
			b.says(advised(long), "<img src=x onerror=window.hacked=1>U+202E")
			b.says(advised(long), "frozen until")
			b.says(advised(long), "3 × ceiling")
			b.says(advised(long), "keys above 40 requests in 10s get 31.6")
			b.says(advised(long), "within 90 s of the end of the advice")
			if text := b.text(advised(long)); strings.Contains(text, "floor,") || strings.Contains(text, "NaN") || strings.Contains(text, "undefined") {
				t.Errorf("it says: %s", text)
			}
			b.fits("odd advice")
			b.until("document.querySelectorAll('#advised > li').length === 50")
			b.says("#show-advised", "Show 11 more of 11")
			b.click("#show-advised")
			b.until("document.querySelectorAll('#advised > li').length === 61")
			b.until("document.querySelector('#advised-more').hidden")

			// By keyboard: Enter opens the question, Tab and Enter confirm it, and Escape returns to the button.
			first := advised("tenant/00")
			b.do(chromedp.Focus(chromedp.CSS(first+" .revert")), chromedp.KeyEvent(kb.Enter))
			b.until("document.activeElement.id === 'advice-no'")
			b.fits("a question on odd advice")
			a.is(func() { a.refuses = `rule "tenant/00": <b>read-only</b>` })
			b.do(chromedp.Focus(chromedp.CSS("#advice-yes")), chromedp.KeyEvent(kb.Enter))
			b.says("#advice-said .failed", `Nothing was done. Caddy says: rule "tenant/00": <b>read-only</b>`)
			b.do(chromedp.KeyEvent(kb.Escape))
			b.until("!document.querySelector('#advicebox').open && document.activeElement.matches('button.revert')")
			a.is(func() { a.refuses = "" })
			b.do(chromedp.Focus(chromedp.CSS(first+" .freeze")), chromedp.KeyEvent(kb.Enter))
			b.says("#advice-text", "Unfreeze the limit of tenant/00?")
			b.click("#advice-yes")
			b.says("#advice-said", "The limit follows advice again.")
			b.click("#advice-close")
			a.is(func() { a.advice["rules"].([]any)[1].(map[string]any)["why"] = "advice" })
			b.says(first+" .freeze", "Freeze …")
			b.click(first + " .freeze")
			b.choose("#freeze", "24h")
			b.click("#advice-yes")
			b.says("#advice-said", "The limit is frozen.")
			b.click("#advice-close")
			var did []string
			for _, act := range a.actions() {
				body, _ := json.Marshal(act.body)
				did = append(did, act.path+" "+string(body))
			}
			if want := `/rate_limit/revert {"rule":"tenant/00"}; /rate_limit/freeze {"for":"0s","rule":"tenant/00"}; /rate_limit/freeze {"for":"24h","rule":"tenant/00"}`; strings.Join(did, "; ") != want {
				t.Errorf("it sends %s, want %s", strings.Join(did, "; "), want)
			}
			if names := js[[]string](b, "[...document.querySelectorAll('#advised button')].map((e) => e.textContent)"); names[2] != "Freeze … tenant/00" || names[3] != "Revert … tenant/00" {
				t.Errorf("the buttons are named %q", names[:4])
			}
			must.Equal(t, js[string](b, "String(window.hacked)"), "undefined", "what an advisor sent was run")
			a.is(func() { delete(a.advice, "poll") })
			b.says("#advice-state .good", "The advisor is part of this Caddy")
			// Caddy has another configuration since its health was asked for.
			a.is(func() { a.ended = true })
			b.until("document.querySelector('#advice').hidden")
			b.until("document.querySelector('#outage').hidden")
		})
	}
}
