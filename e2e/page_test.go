package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/proxyweir/weir/tools/must"
)

// pageOf runs `caddy rate-limit page` in front of the admin endpoint at an address, and returns the page's URL.
func pageOf(t testing.TB, admin string) string {
	t.Helper()
	path, err := caddyProgram()
	must.Succeed(t, err)
	dir := t.TempDir()
	program := exec.Command(path, "rate-limit", "page", "--address", admin, "--listen", "localhost:0")
	program.Env = append(os.Environ(), "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	program.SysProcAttr = endWithParent()
	output, err := program.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, program.Start())
	t.Cleanup(func() {
		_ = program.Process.Kill()
		_ = program.Wait()
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatalf("the command prints no URL: %v", err)
	}
	return strings.TrimSpace(line)
}

// chromium returns the path of the browser.
func chromium(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("Chromium is not installed, and the page is tested in it: apt-get install chromium; brew install chromium; dnf install chromium")
	return ""
}

// browser is a page in a headless Chromium, with storage of its own.
type browser struct {
	t     testing.TB
	ctx   context.Context
	url   string
	alone bool // the page asks for nothing more

	mu       sync.Mutex
	requests map[network.RequestID]string // their URLs, without those that the policy has blocked
	problems []string                     // messages of the console
}

// Sizes of windows.
var (
	desktop = [2]int64{1280, 900}
	phone   = [2]int64{360, 740}
)

// monitoring runs before the page's script: it records the delays of pending timers, and what the policy blocks.
const monitoring = `
window.pendingTimers = new Map(); window.delays = []; window.refusals = [];
{
	const set = window.setTimeout, clear = window.clearTimeout;
	window.setTimeout = (f, delay, ...more) => {
		const id = set(() => { window.pendingTimers.delete(id); f(...more); }, delay);
		window.pendingTimers.set(id, delay);
		window.delays.push(delay);
		return id;
	};
	window.clearTimeout = (id) => { window.pendingTimers.delete(id); clear(id); };
	document.addEventListener("securitypolicyviolation", (e) => window.refusals.push(e.effectiveDirective));
}`

// chrome is the browser of all tests, which the first of them starts.
var chrome struct {
	once sync.Once
	ctx  context.Context
	end  func() // it waits until the browser has ended; nil: none was started
	err  error
}

func sharedBrowser(t testing.TB) context.Context {
	t.Helper()
	path := chromium(t)
	chrome.once.Do(func() {
		dir, err := os.MkdirTemp("", "weir-browser")
		if err != nil {
			chrome.err = err
			return
		}
		options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.WSURLReadTimeout(2*time.Minute),
			chromedp.UserDataDir(dir), chromedp.Flag("lang", "en"), chromedp.Flag("host-resolver-rules", "MAP *.test 127.0.0.1"))
		if os.Getuid() == 0 {
			options = append(options, chromedp.NoSandbox) // Chromium as root needs this
		}
		ctx, endAllocator := chromedp.NewExecAllocator(context.Background(), options...)
		ctx, end := chromedp.NewContext(ctx)
		chrome.ctx, chrome.err = ctx, chromedp.Do(ctx)
		chrome.end = func() {
			end()
			endAllocator()
			_ = os.RemoveAll(dir)
		}
	})
	if chrome.err != nil {
		t.Fatal(chrome.err)
	}
	return chrome.ctx
}

// open opens a page. At the end of the test, the console must have only expected messages, and the browser must have requested only
// the page's own origin.
func open(t testing.TB, address string, size [2]int64, expected ...string) *browser {
	t.Helper()
	ctx, end := chromedp.NewContext(sharedBrowser(t), chromedp.WithNewBrowserContext())
	b := &browser{t: t, ctx: ctx, url: address, requests: make(map[network.RequestID]string)}
	t.Cleanup(func() {
		b.check(expected)
		end()
	})
	must.Succeed(t, chromedp.Listen(ctx, b.note))
	call(b, network.Enable, network.EnableParams{})
	call(b, log.Enable, cdp.Empty{})
	call(b, runtime.Enable, cdp.Empty{})
	b.resize(size)
	b.prefers("light")
	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: monitoring})
	b.do(chromedp.Navigate(address))
	return b
}

// resize sets the size of the window.
func (b *browser) resize(size [2]int64) {
	b.t.Helper()
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: size[0], Height: size[1], DeviceScaleFactor: 1, Mobile: size == phone})
}

// prefers sets the preferred colour scheme.
func (b *browser) prefers(scheme string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

// call sends the browser a command.
func call[P, R any](b *browser, command cdp.Command[P, R], with P) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, command, with); err != nil {
		b.t.Fatal(err)
	}
}

// note records an event of the browser.
func (b *browser) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.requests[e.RequestID] = e.Request.URL
	case *network.EventWebSocketCreated:
		b.requests[e.RequestID] = e.URL
	case *network.EventLoadingFailed:
		if e.BlockedReason == network.BlockedReasonCsp {
			delete(b.requests, e.RequestID)
		}
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, fmt.Sprint("exception: ", e.ExceptionDetails.Text, " ", e.ExceptionDetails.Exception))
	case *runtime.EventConsoleAPICalled:
		text := string(e.Type)
		for _, arg := range e.Args {
			text += " " + string(arg.Value) + arg.Description
		}
		b.problems = append(b.problems, "console: "+text)
	case *log.EventEntryAdded:
		b.problems = append(b.problems, "log: "+e.Entry.Text)
	}
}

// check checks what must hold for every page at the end.
func (b *browser) check(expected []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own, _ := url.Parse(b.url)
	for _, request := range b.requests {
		if u, err := url.Parse(request); err != nil || u.Scheme != "data" && (u.Scheme != "http" || u.Host != own.Host) {
			b.t.Errorf("the page asks %s", request)
		}
	}
	if len(b.requests) < 3 && !b.alone {
		b.t.Errorf("there were %d requests: were they listened to?", len(b.requests))
	}
	for _, problem := range b.problems {
		if !slices.ContainsFunc(expected, func(text string) bool { return strings.Contains(problem, text) }) {
			b.t.Errorf("the browser says: %s", problem)
		}
	}
}

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, end := context.WithTimeout(b.ctx, time.Minute)
	defer end()
	must.Succeed(b.t, chromedp.Do(ctx, actions...))
}

// js evaluates an expression, which may be a promise, into a value.
func js[T any](b *browser, expression string) T {
	b.t.Helper()
	ctx, end := context.WithTimeout(b.ctx, time.Minute)
	defer end()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// until waits until an expression is true.
func (b *browser) until(expression string) {
	b.t.Helper()
	if !await(func() bool { return js[bool](b, expression) }) {
		b.t.Fatalf("it never came to be that %s; the page has:\n%s", expression, js[string](b, "document.body.innerText.slice(0, 3000)"))
	}
}

func quoted(text string) string {
	q, _ := json.Marshal(text)
	return string(q)
}

// text returns the text of the only element of a selector; "" if there is none.
func (b *browser) text(selector string) string {
	b.t.Helper()
	return js[string](b, "(document.querySelector("+quoted(selector)+") || {textContent: ''}).textContent")
}

// says waits until the element of a selector has a text.
func (b *browser) says(selector, text string) {
	b.t.Helper()
	b.until("[...document.querySelectorAll(" + quoted(selector) + ")].some((e) => e.textContent.includes(" + quoted(text) + ") && e.checkVisibility())")
}

// click clicks the element of a selector, if it is visible and nothing covers it. It checks and clicks in one step, since the page
// changes all the time and may move the element.
func (b *browser) click(selector string) {
	b.t.Helper()
	b.until(`((e) => {
		if (!e?.checkVisibility()) return false;
		e.scrollIntoView({block: "center"});
		const {left, top, width, height} = e.getClientRects()[0];
		if (!e.contains(document.elementFromPoint(left + width / 2, top + height / 2))) return false;
		e.focus();
		e.click();
		return true;
	})(document.querySelector(` + quoted(selector) + `))`)
}

// choose sets a field's value, as a person does.
func (b *browser) choose(selector, value string) {
	b.t.Helper()
	js[bool](b, "((e) => { e.value = "+quoted(value)+"; e.dispatchEvent(new Event('input')); return e.dispatchEvent(new Event('change')); })(document.querySelector("+quoted(selector)+"))")
}

// row returns the selector of a rule's element.
func row(rule string) string {
	return fmt.Sprintf("li[data-rule=%q]", rule)
}

// order returns the names of the rules that are drawn, in their order.
func (b *browser) order() []string {
	b.t.Helper()
	return js[[]string](b, "[...document.querySelectorAll('#rules > li')].map((li) => li.dataset.rule)")
}

// polled makes the page poll, without waiting, that many times more.
func (b *browser) polled(a *adminAPI, times int) {
	b.t.Helper()
	wanted := a.pollsSoFar() + times
	eventually(b.t, "the page has polled", func() bool {
		return js[bool](b, "(document.getElementById('retry').click(), true)") && a.pollsSoFar() >= wanted
	})
}

// fits checks that nothing is wider than the window.
func (b *browser) fits(what string) {
	b.t.Helper()
	type wide struct {
		Page, Window int
		Culprits     []string
	}
	got := js[wide](b, `({Page: document.documentElement.scrollWidth, Window: innerWidth, Culprits: [...document.querySelectorAll("body *")].filter((e) =>
		e.checkVisibility() && !e.closest("svg, .unseen, .num .label, pre, .scrolls, .scroll") && (e.getBoundingClientRect().right > innerWidth + 0.5 || e.getBoundingClientRect().left < -0.5))
		.slice(0, 5).map((e) => e.tagName + "." + e.className + " " + e.textContent.slice(0, 40))})`)
	if got.Page > got.Window || len(got.Culprits) > 0 {
		b.t.Errorf("%s: the page is %d wide in a window of %d: %q", what, got.Page, got.Window, got.Culprits)
	}
}

// shot takes a picture of the window, if WEIR_SCREENSHOTS names a folder for it.
func (b *browser) shot(name string) {
	b.t.Helper()
	folder := os.Getenv("WEIR_SCREENSHOTS")
	if folder == "" {
		return
	}
	picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	must.Succeed(b.t, err)
	must.Succeed(b.t, os.WriteFile(filepath.Join(folder, name), picture, 0o644))
}

func TestThePageShowsLiveRatesOfRulesAndTheHealthOfStores(t *testing.T) {
	a := startAPI(t)
	a.asOfAShop()
	a.rules[0].rates = steady(4, 2)
	b := open(t, pageOf(t, a.addr), desktop)
	login := row("shop/login")
	// At its own pace, without help.
	b.says(login+" .num.allowed .value", "4.0")
	b.says(login+" .num.rejected .value", "2.0")
	b.says(login, "5/1m")
	b.says(login, "penalty 1m 10m 1h")
	b.says(login+" .num.keys", "4,211")
	a.is(func() { a.rules[0].rates = steady(40, 20) })
	b.polled(a, 6)
	b.says(login+" .num.allowed .value", "40")
	b.says(login+" .num.rejected .value", "20")
	b.until("document.querySelectorAll('#rules .plot path.a[d]:not([d=\"\"])').length === 7")
	b.until("document.querySelectorAll('" + login + " .plot path.r[d]:not([d=\"\"])').length === 1")
	b.until("document.querySelector('#all-plot path.a').getAttribute('d').length > 20")
	if share := b.text(login + " .num.share .value"); share != "33 %" {
		t.Errorf("share rejected %q, want 33 %%", share)
	}

	// The rules with the most rejections come first, whatever the others allow.
	if order := b.order(); order[0] != "shop/login" || !slices.Contains(order[1:4], "shop/search") {
		t.Errorf("the order is %q", order)
	}
	a.is(func() { a.rules[4].rates = steady(1, 900) })
	b.polled(a, 6)
	b.until("document.querySelector('#rules > li').dataset.rule === 'everyone'")

	// The overflow policies of rules.
	for rule, want := range map[string]string{
		"shop/search": "candidate 15/1s: would reject 1.3 % more", "shop/checkout": "shadow: counts, but rejects nothing", "api/per-key": "soft 20% 30s", "thumbnails": "17 waiting"} {
		b.says(row(rule), want)
	}
	b.says(row("shop/checkout")+" .num.rejected", "would be")

	// The stores' health, and its changes.
	b.says("#health .good", "32,294 of 1,000,000 keys")
	b.says("#health .good", "10.0.4.12:6379")
	b.says("#health .good", "since the start: 3 × timeout")
	b.says("#health .good", "in force since ")
	a.is(func() {
		a.stores[0]["evictions"] = 5
		a.stores[1]["breaker"] = "open"
		a.errors["timeout"] = 12
		a.ruleFiles["successful"] = false
		a.rules[2].rates = steady(7, 0)
		a.rules[2].gives = map[string]string{"allowed": "fallback"}
	})
	b.polled(a, 2)
	b.says("#health .bad", "does not answer: the breaker is open")
	b.says("#health .bad", "9 store errors in the last minute")
	b.says("#health .bad", "the last change was refused")
	b.says(row("api/per-key")+" .chip.warn", "allowed by local memory: the store does not answer")

	guard := map[string]any{"name": "shop", "under_way": 12, "limit": 37, "max": 128, "min": 8, "baseline_seconds": 0.0412, "rejected": map[string]int{"full": 5, "unfair": 2, "tightened": 0}}
	a.is(func() { a.guards = []map[string]any{guard} })
	b.polled(a, 2)
	b.says("#health .good", "Guard shop")
	b.says("#health .good", "12 of 37 under way · usually answers in 42 ms · 7 turned away")
	a.is(func() {
		guard["rejected"] = map[string]int{"full": 5, "unfair": 9, "tightened": 3}
		guard["tightened"] = []map[string]any{{"rule": "api", "above": 40, "limit": 31.6}}
	})
	b.polled(a, 1)
	b.says("#health .warn", "turns requests away: 12 of 37 under way · usually answers in 42 ms · 17 turned away · unusual keys of api get 32 in 10 s")

	queue := map[string]any{"rule": "shop/<b>orders</b>", "accepting": true, "waiting": 1234, "running": 2, "dead": 0, "oldest_seconds": 75.2}
	a.is(func() { a.deferred = []map[string]any{queue} })
	b.polled(a, 2)
	b.says("#health .good", "Deferred by shop/<b>orders</b>")
	b.says("#health .good", "1,234 waiting · 2 running · 0 could not be done · the oldest for 76 s")
	a.is(func() { queue["dead"] = 3 })
	b.polled(a, 2)
	b.says("#health .warn", "3 could not be done")
	a.is(func() { queue["accepting"], queue["why"] = false, "an operator drains it" })
	b.polled(a, 2)
	b.says("#health .bad", "accepts none: an operator drains it · 1,234 waiting")

	// Caddy restarts, and so do its counts: the page does not compare them with those before.
	a.is(func() {
		for _, rule := range a.rules {
			rule.outcomes = nil
		}
	})
	b.polled(a, 2)
	b.until("/^[0-9.k]+$/.test(document.querySelector('#all-allowed').textContent)")
	if text := js[string](b, "document.body.innerText"); strings.Contains(text, "NaN") || strings.Contains(text, "undefined") || strings.Contains(text, "null") || strings.Contains(text, "Infinity") {
		t.Errorf("the page says:\n%s", text)
	}
	b.says(login+" .num.allowed .value", "40")
	if share := b.text(login + " .num.share .value"); share != "33 %" {
		t.Errorf("after a restart the share rejected is %q, want 33 %%", share)
	}
}

func TestThePageOpensARuleToItsTopKeys(t *testing.T) {
	a := startAPI(t)
	a.asOfAShop()
	b := open(t, pageOf(t, a.addr), desktop)
	login := row("shop/login")
	b.click(login + " h3 button")
	b.says(login+" .by-rejections h4", "Most rejected, last 10 min")
	b.until("document.querySelectorAll('" + login + " .by-rejections tbody tr').length === 5") // the sixth key was not rejected
	b.until("document.querySelectorAll('" + login + " .by-requests tbody tr').length === 6")
	first := login + " .by-rejections tbody tr:first-child"
	b.says(first, "203.0.113.41")
	b.says(first+" td:last-child", "2,863")
	b.says(login+" .by-rejections tbody tr:nth-child(2) td:last-child", "1,390–1,402") // as exact as is known
	b.until("document.querySelector('" + login + " .detail .plot.large path.a').getAttribute('d').length > 20")
	// Counts are updated while the rule is open.
	before := b.text(login + " .by-requests tbody tr:first-child td:nth-child(2)")
	b.until("document.querySelector('" + login + " .by-requests tbody tr:first-child td:nth-child(2)').textContent !== " + quoted(before))

	// Only one rule is open at a time; Enter opens and closes one.
	b.do(chromedp.Focus(chromedp.CSS(row("api/per-key")+" h3 button")), chromedp.KeyEvent(kb.Enter))
	b.says(row("api/per-key")+" .detail", "/etc/caddy/rules/api.yaml:12")
	b.says(row("api/per-key")+" .detail", "tier gold1000/1m")
	b.says(row("api/per-key")+" .detail", "No key was seen.")
	b.until("document.querySelectorAll('.detail:not([hidden])').length === 1 && document.querySelectorAll('[aria-expanded=true]').length === 1")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until("document.querySelectorAll('.detail:not([hidden])').length === 0")

	b.click(row("shop/search") + " h3 button")
	b.says(row("shop/search")+" .detail", "Of 92,292 requests the candidate would have rejected 1,204 that the rule allowed")
}

func TestThePageActsOnAKeyAfterConfirmation(t *testing.T) {
	a := startAPI(t)
	a.asOfAShop()
	b := open(t, pageOf(t, a.addr), desktop, "status of 400")
	login, id := row("shop/login"), keyID([]string{"203.0.113.41"})
	b.click(login + " h3 button")
	b.click(login + " .by-rejections tbody tr:first-child button.key")
	b.says("#keybox", "203.0.113.41")
	b.says("#key-state", "3 of 5")
	b.says("#key-state", "in 42 s")

	acted := func(want ...string) {
		t.Helper()
		got := a.actions()
		if len(got) != len(want) {
			t.Fatalf("actions: %v, want %v", got, want)
		}
		for i, text := range want {
			body, _ := json.Marshal(got[i].body)
			if did := got[i].path + " " + string(body); did != text || got[i].contentType != "application/json" {
				t.Errorf("it sends %s as %s, want %s", did, got[i].contentType, text)
			}
		}
	}
	reset := `/rate_limit/reset {"id":"` + id + `","rule":"shop/login"}`
	blocked := `/rate_limit/block {"for":"24h","id":"` + id + `","rule":"shop/login"}`
	blockedFor := `/rate_limit/block {"for":"1h30m","id":"` + id + `","rule":"shop/login"}`
	readmitted := `/rate_limit/unblock {"id":"` + id + `","rule":"shop/login"}`

	// Nothing is sent before it is confirmed, and nothing if it is cancelled.
	b.click("[data-do=reset]")
	b.says("#confirm-text", "Reset the count of shop/login for this key?")
	if focused := js[string](b, "document.activeElement.id"); focused != "confirm-no" {
		t.Errorf("the focus is on %q, want it where nothing happens", focused)
	}
	b.click("#confirm-no")
	acted()
	b.click("[data-do=reset]")
	b.click("#confirm-yes")
	b.says("#key-said", "The count was reset.")
	acted(reset)

	b.click("[data-do=block]")
	b.choose("#for", "24h")
	b.click("#confirm-yes")
	b.says("#key-said", "The key is blocked.")
	b.says("#key-state", "is rejected")
	b.says("#key-state", "in 1 h")
	acted(reset, blocked)

	b.click("[data-do=unblock]")
	b.click("#confirm-yes")
	b.says("#key-said", "The key is unblocked.")
	b.says("#key-state", "may pass")
	acted(reset, blocked, readmitted)

	// Another duration; an invalid one is not sent.
	b.click("[data-do=block]")
	b.choose("#for", "")
	b.do(chromedp.SendKeys(chromedp.CSS("#for-other"), "for ever"))
	b.click("#confirm-yes")
	b.until("document.querySelector('#for-other:invalid') !== null && !document.querySelector('#confirm').hidden")
	acted(reset, blocked, readmitted)
	b.choose("#for-other", "1h30m")
	b.click("#confirm-yes")
	b.says("#key-said", "The key is blocked.")
	acted(reset, blocked, readmitted, blockedFor)

	// The page does not claim success if Caddy refuses.
	a.is(func() { a.refuses = "rule \"shop/login\": <b>read-only</b>" })
	b.click("[data-do=reset]")
	b.click("#confirm-yes")
	b.says("#key-said", `Nothing was done. Caddy says: rule "shop/login": <b>read-only</b>`)
	acted(reset, blocked, readmitted, blockedFor, reset)

	// Escape closes the dialog, and returns the focus to where it was.
	b.do(chromedp.KeyEvent(kb.Escape))
	b.until("!document.querySelector('#keybox').open && document.activeElement.matches('button.key')")
}

func TestThePageLooksAKeyUpByHand(t *testing.T) {
	a := startAPI(t)
	a.asOfAShop()
	b := open(t, pageOf(t, a.addr), desktop)
	exports := row("api/exports")
	b.click(exports + " h3 button")
	b.until("document.querySelectorAll('" + exports + " .look input').length === 2") // one for each part
	b.do(chromedp.SendKeys(chromedp.CSS(exports+" .look > div:nth-child(1) input"), "a & b=c"),
		chromedp.SendKeys(chromedp.CSS(exports+" .look > div:nth-child(2) input"), "192.0.2.7"), chromedp.KeyEvent(kb.Enter))
	b.says("#key-state", "may pass")
	a.is(func() {
		if want := `{"rule":"api/exports","key":["a & b=c","192.0.2.7"]}`; !slices.Contains(a.asked, want) {
			t.Errorf("it asks %q, want %q", a.asked, want)
		}
	})
	b.click("[data-do=block]")
	b.click("#confirm-yes")
	b.says("#key-said", "The key is blocked.")
	acted := a.actions()
	if body, _ := json.Marshal(acted[0].body); string(body) != `{"for":"1h","key":["a \u0026 b=c","192.0.2.7"],"rule":"api/exports"}` {
		t.Errorf("it sends %s", body)
	}
}

func TestThePageExplainsARequest(t *testing.T) {
	a := startAPI(t)
	a.asOfAShop()
	b := open(t, pageOf(t, a.addr), phone, "status of 400")
	b.click("#explain > summary")
	b.choose("#x-method", "POST")
	b.choose("#x-headers", "X-Plan: free\nnonsense")
	b.do(chromedp.SendKeys(chromedp.CSS("#x-url"), "https://example.com/login"), chromedp.SendKeys(chromedp.CSS("#x-ip"), "192.0.2.7"))
	b.click("#explain-form button")
	b.says("#explained", "line 2")
	b.choose("#x-headers", "X-Plan: free\n\nX-Many: a\nX-Many: b:c")
	b.click("#explain-form button")
	b.says("#explained .verdict", "would be rejected")
	b.says("#explained", "rejected, retry in 13 s")
	b.says("#explained", "does not cover it")
	b.says("#explained", "matchers that look at the response are not tried")
	b.fits("a request that is explained")
	acted := a.actions()
	if body, _ := json.Marshal(acted[0].body); len(acted) != 1 ||
		string(body) != `{"client_ip":"192.0.2.7","headers":{"X-Many":"a, b:c","X-Plan":"free"},"method":"POST","url":"https://example.com/login"}` {
		t.Errorf("it sends %s", body)
	}
	b.choose("#x-url", "/login")
	b.click("#explain-form button")
	b.says("#explained .failed", `Caddy says: url "/login": an absolute URL is wanted`)
}

func TestThePageShowsWhatTheProxyHasLeased(t *testing.T) {
	a := startAPI(t)
	a.asOfAShop()
	a.held = map[string]any{"held": 1234, "held_seconds": 0.75}
	for _, rule := range a.rules {
		rule.more = map[string]any{"held": 5678}
	}
	b := open(t, pageOf(t, a.addr), phone)
	login := row("shop/login")
	b.says(login, "holds 5,678 units")
	b.click("#explain > summary")
	b.do(chromedp.SendKeys(chromedp.CSS("#x-url"), "https://example.com/login"), chromedp.SendKeys(chromedp.CSS("#x-ip"), "192.0.2.7"))
	b.click("#explain-form button")
	b.says("#explained", "held by this proxy: 1,234, for another 0.8 s")
	b.fits("what is held")
	b.click(login + " h3 button")
	b.click(login + " .by-rejections tbody tr:first-child button.key")
	b.says("#key-state", "1,234, for another 0.8 s")
}

func TestWhatClientsSendAsKeysIsShownAndHasNoEffect(t *testing.T) {
	for name, size := range map[string][2]int64{"on a phone": phone, "on a desk": desktop} {
		t.Run(name, func(t *testing.T) {
			a := startAPI(t)
			a.rules = []*apiRule{
				{id: "api/agents", limit: "5/1m", algorithm: "token_bucket", key: []string{"header:User-Agent"}, rates: steady(1, 3), more: map[string]any{"keys": len(hostileKeys),
					"notes": []string{"<img src=x onerror=window.hacked=6>", "\u202enote"}, "source": "/etc/<script>/" + strings.Repeat("deep/", 60) + "\u2066.yaml:1"}},
				{id: strings.Repeat("n", 64) + "/" + strings.Repeat("r", 64), limit: "1000000000/366d", algorithm: "sliding_window_counter", key: []string{"header:" + strings.Repeat("X", 80), "client_ip"},
					rates: steady(123456, 4567890), more: map[string]any{"keys": 1000000, "enforcement": "shadow"}},
			}
			for i, key := range hostileKeys {
				a.keys["api/agents"] = append(a.keys["api/agents"], apiKey{parts: []string{key, "192.0.2.1"}[:1+i%2], requests: 1000000 - i, rejections: 1000000000 - i})
			}
			b := open(t, pageOf(t, a.addr), size)
			agents := row("api/agents")
			b.says(agents+" .num.rejected .value", "3.0")
			b.fits("the list")
			b.click(agents + " h3 button")
			b.until("document.querySelectorAll('" + agents + " .by-requests tbody tr').length === 10")
			for shift := range (len(hostileKeys) + 9) / 10 {
				if shift > 0 { // to bring the others to the top
					a.is(func() {
						a.keys["api/agents"] = append(a.keys["api/agents"][10:], a.keys["api/agents"][:10]...)[:len(hostileKeys)-10]
					})
					b.do(chromedp.Focus(chromedp.CSS("#search")))
					b.do(chromedp.MouseEvent(chromedp.MouseMoved, 1, 1))
					b.until(fmt.Sprintf("document.querySelectorAll('%s .by-requests tbody tr').length === %d", agents, len(hostileKeys)-10))
				}
				b.fits("an open rule")
				keys := js[int](b, "document.querySelectorAll('"+agents+" .by-requests button.key').length")
				for i := 1; i <= keys; i++ {
					b.click(fmt.Sprintf("%s .by-requests tbody tr:nth-child(%d) button.key", agents, i))
					b.says("#key-state", "3 of 5")
					b.fits("a key")
					b.click("[data-do=block]")
					b.fits("a question")
					b.click("#confirm-no")
					b.click("#key-close")
				}
			}
			// A key takes only a few lines, however long it is and however many marks its letters have.
			if height := js[float64](b, "Math.max(...[...document.querySelectorAll('button.key')].map((e) => e.getBoundingClientRect().height))"); height > 240 {
				t.Errorf("a key is %v high", height)
			}
			if n := js[int](b, "document.querySelectorAll('img, iframe, body script:not(:last-of-type), object, embed').length"); n > 0 {
				t.Errorf("there are %d unexpected elements", n)
			}
			must.Equal(t, js[string](b, "String(window.hacked)"), "undefined", "what a client sent was run")
			if found := js[string](b, `(document.body.innerText.match(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu) || []).filter((c) => c !== "\n" && c !== "\t").map((c) => c.codePointAt(0).toString(16)).join(" ")`); found != "" {
				t.Errorf("characters that cannot be seen are shown as they are: %s", found)
			}
			if refused := js[[]string](b, "window.refusals"); len(refused) > 0 {
				t.Errorf("the page tried what its policy refuses: %q", refused)
			}
			b.until(`[...document.querySelectorAll("bdi.part")].every((e) => getComputedStyle(e).unicodeBidi === "isolate")`)
		})
	}
}

// Defect found: all very long keys, which have no id, shared one line, which opened another key.
func TestKeysThatAreTooLongToBeNamedAreLinesOfTheirOwn(t *testing.T) {
	a := startAPI(t)
	a.rules = []*apiRule{{id: "r", limit: "5/1m", algorithm: "token_bucket", key: []string{"header:X"}}}
	for _, key := range []string{"kkkk…#1111", "kkkk…#2222"} {
		a.keys["r"] = append(a.keys["r"], apiKey{parts: []string{key}, requests: 1, cut: true})
	}
	a.keys["r"] = append(a.keys["r"], apiKey{parts: []string{"short"}, requests: 1})
	a.keyFails = "redis: connection refused"
	b := open(t, pageOf(t, a.addr), desktop)
	b.click(row("r") + " h3 button")
	b.until("document.querySelectorAll('.by-requests tbody tr').length === 3")
	for _, text := range []string{"kkkk…#1111 too long to select here", "kkkk…#2222 too long to select here"} {
		b.says(".by-requests tbody", text)
	}
	b.until("document.querySelectorAll('.by-requests button.key').length === 1")

	// For the other key nothing is known, since the store has failed.
	b.click(".by-requests button.key")
	b.says("#key-state", "not known: redis: connection refused")
	if text := b.text("#key-state"); strings.Contains(text, "is rejected") || strings.Contains(text, "remaining") {
		t.Errorf("%s", text)
	}
}

func TestHostileKeysAreSpelledOut(t *testing.T) {
	a := startAPI(t)
	a.rules = []*apiRule{{id: "r", limit: "5/1m", algorithm: "token_bucket", key: []string{"header:X"}}}
	want := map[string]string{
		"\x00\x1b[31m\u0085":     "U+0000U+001B[31mU+0085",
		"\u202egnp.exe":          "U+202Egnp.exe",
		"":                       "empty",
		" a  b ":                 "spacea spacebspace",
		"é\u0301\u0302\u0303":    "é\u0301\u0302U+0303",
		strings.Repeat("a", 100): strings.Repeat("a", 48) + " … " + strings.Repeat("a", 16) + " (100 characters)",
		"\u05d0\u05d1":           "\u05d0\u05d1",
		"<b>":                    "<b>",
		"a\U000E0041\u00a0b":     "aU+E0041U+00A0b",
	}
	for key := range want {
		a.keys["r"] = append(a.keys["r"], apiKey{parts: []string{key}, requests: 1})
	}
	b := open(t, pageOf(t, a.addr), desktop)
	b.click(row("r") + " h3 button")
	b.until(fmt.Sprintf("document.querySelectorAll('.by-requests bdi').length === %d", len(want)))
	shown := js[[]string](b, "[...document.querySelectorAll('.by-requests bdi')].map((e) => e.textContent)")
	for key, text := range want {
		if !slices.Contains(shown, text) {
			t.Errorf("%q is shown as none of %q, want %q", key, shown, text)
		}
	}
}

func TestThePageSaysThatCaddyDoesNotAnswerAndGoesOnByItself(t *testing.T) {
	a := startAPI(t)
	a.asOfAShop()
	b := open(t, pageOf(t, a.addr), phone, "status of 502", "status of 500")
	b.says("#live", "live, ")
	a.is(func() { a.down = true })
	b.says("#outage", "Caddy does not answer")
	b.says("#outage", "These figures are of ")
	b.says("#outage-when", "Trying again in ")
	b.says("#live", "as of ")
	b.fits("an outage")
	b.says(row("shop/login"), "5/1m") // the last known figures stay
	// The page asks less and less often.
	b.until("window.delays.includes(4000) && window.delays.indexOf(2000) < window.delays.indexOf(4000)")
	a.is(func() { a.down = false })
	b.says("#live", "live, ")
	b.until("document.querySelector('#outage').hidden && !document.body.matches('.stale')")

	// The user can try again at once.
	a.is(func() { a.down = true })
	b.says("#outage", "Caddy does not answer")
	a.is(func() { a.down = false })
	js[bool](b, "(document.querySelector('#retry').click(), true)") // the button may be hidden by now
	b.says("#live", "live, ")

	// The page shows whether Caddy does not answer, or answers with an error: the cause differs.
	a.is(func() { a.fails = "<b>no\u202e such app</b>" })
	b.says("#outage", "Caddy answers with an error: <b>noU+202E such app</b>.")
	a.is(func() { a.fails = "" })
	js[bool](b, "(document.querySelector('#retry').click(), true)") // the button may be hidden by now
	b.says("#live", "live, ")
}

// Defect found: a reload of the page in the browser began all curves anew.
func TestTheHistorySurvivesAReloadOfThePage(t *testing.T) {
	a := startAPI(t)
	a.asOfAShop()
	for _, rule := range a.rules {
		rule.rates = steady(0, 0)
	}
	a.rules[0].rates = steady(400, 200)
	b := open(t, pageOf(t, a.addr), desktop)
	b.says("#live", "live, ")
	b.polled(a, 3)
	b.says("#all-peak", "highest 400/s")
	reload := func() {
		t.Helper()
		js[bool](b, "(window.before = true)")
		call(b, page.Reload, page.ReloadParams{})
		b.until("window.before === undefined && document.readyState === 'complete'")
		b.says("#live", "live, ")
	}
	// After the reload nothing comes any more, so what is plotted is from before.
	a.is(func() { a.rules[0].rates = steady(0, 0) })
	reload()
	b.polled(a, 2)
	b.says("#all-peak", "highest 400/s")
	b.says(row("shop/login")+" .peak", "400/s")
	b.says(row("shop/login")+" .num.share .value", "33 %")
	for _, key := range a.keys["shop/login"] {
		if strings.Contains(js[string](b, "JSON.stringify(sessionStorage)"), key.parts[0]) {
			t.Errorf("the storage has the key %q", key.parts)
		}
	}
	// Counts of another process are another history. So are those that are over, and what is no history is ignored.
	for name, change := range map[string]func(){
		"another process": func() { a.started = a.started.Add(time.Hour) },
		"too old":         func() { a.now = a.now.Add(10 * time.Minute) },
		"nonsense":        func() {},
	} {
		a.is(func() { a.rules[0].rates = steady(400, 200) })
		b.polled(a, 3)
		b.says("#all-peak", "highest 400/s")
		a.is(func() {
			a.rules[0].rates = steady(0, 0)
			change()
		})
		if name == "nonsense" {
			js[bool](b, `(window.addEventListener("pagehide", () => sessionStorage.setItem("weir history", sessionStorage.getItem("weir history").replace('"all":{"times":[', '"all":{"times":["x",'))), true)`)
		}
		reload()
		b.polled(a, 2)
		must.Equal(t, b.text("#all-peak"), "", "%s: the plot has", name)
	}
}

func TestThePageRestsWhileItIsHidden(t *testing.T) {
	a := startAPI(t)
	a.asOfAShop()
	b := open(t, pageOf(t, a.addr), desktop)
	b.says("#live", "live, ")
	hidden := "(Object.defineProperty(document, 'hidden', {value: %t, configurable: true}), document.dispatchEvent(new Event('visibilitychange')))"
	js[bool](b, fmt.Sprintf(hidden, true))
	// A hidden page asks nothing, and no timer is pending.
	b.until("document.querySelector('#live').textContent === 'paused' && window.pendingTimers.size === 0")
	before := a.pollsSoFar()
	js[bool](b, fmt.Sprintf(hidden, false))
	eventually(t, "the page asks again", func() bool { return a.pollsSoFar() > before })
	b.says("#live", "live, ")
	// The same if the page is hidden while Caddy is about to answer.
	a.is(func() {
		js[bool](b, "(document.getElementById('retry').click(), new MutationObserver(() => { window.answered = true; }).observe(document.querySelector('#live'), {childList: true}), true)")
		js[bool](b, fmt.Sprintf(hidden, true))
		b.until("document.querySelector('#live').textContent === 'paused' && window.answered")
		js[bool](b, "!(window.answered = false)")
	})
	b.until("window.answered")
	b.until("document.querySelector('#live').textContent === 'paused' && window.pendingTimers.size === 0")
}

func TestThePageDrawsTheBusiestOfThousandsOfRules(t *testing.T) {
	a := startAPI(t)
	for i := range 5000 {
		a.rules = append(a.rules, &apiRule{id: fmt.Sprintf("tenant-%04d/requests", i), limit: fmt.Sprintf("%d/1m", i+1), algorithm: "sliding_window_counter", key: []string{"client_ip"},
			rates: steady(float64(i%7), math.Mod(float64(i)*7919, 5003)), more: map[string]any{"keys": i}})
	}
	b := open(t, pageOf(t, a.addr), desktop)
	b.says("#list-title", "5,000 rules")
	b.until("document.querySelectorAll('#rules > li').length === 50")
	busiest := slices.Clone(a.rules)
	slices.SortFunc(busiest, func(x, y *apiRule) int {
		_, rx := x.rates(0)
		_, ry := y.rates(0)
		return int(math.Copysign(1, ry-rx))
	})
	b.until("document.querySelector('#rules > li').dataset.rule === " + quoted(busiest[0].id) + " && document.querySelector('#rules .num.rejected .value').textContent !== '–'")
	for i, id := range b.order()[:20] {
		must.Equal(t, id, busiest[i].id, "the rule at place %d", i)
	}
	b.click("#show-more")
	b.until("document.querySelectorAll('#rules > li').length === 100")
	b.do(chromedp.SendKeys(chromedp.CSS("#search"), "tenant-4321 4322/1m"))
	b.until("document.querySelectorAll('#rules > li').length === 1")
	if order := b.order(); order[0] != "tenant-4321/requests" {
		t.Errorf("it finds %q", order)
	}
	b.says("#note", "1 of 5,000 rules have these words.")
	b.do(chromedp.SendKeys(chromedp.CSS("#search"), " nosuch"))
	b.says("#note", "No rule matches all of these words.")
	b.choose("#search", "")
	b.choose("#sort", "name")
	b.until("document.querySelectorAll('#rules > li').length === 50 && document.querySelector('#rules > li').dataset.rule === 'tenant-0000/requests'")
	// The page does not ask all the time.
	wait := js[float64](b, "Math.max(...window.delays)")
	t.Logf("5,000 rules are polled every %.1f s", wait/1000)
}

func TestTheOrderDoesNotChangeWhileARuleIsOpen(t *testing.T) {
	a := startAPI(t)
	a.rules = []*apiRule{
		{id: "first", limit: "5/1m", algorithm: "token_bucket", rates: steady(1, 9)},
		{id: "second", limit: "5/1m", algorithm: "token_bucket", rates: steady(1, 5)},
	}
	b := open(t, pageOf(t, a.addr), phone)
	b.says(row("first")+" .num.rejected .value", "9.0")
	leave := func() {
		b.do(chromedp.MouseEvent(chromedp.MouseMoved, 1, 1))
		js[bool](b, "(document.activeElement.blur(), true)")
	}
	b.click(row("second") + " h3 button")
	leave()
	a.is(func() { a.rules[1].rates = steady(1, 900) })
	b.polled(a, 2)
	b.says("#note", "The order does not change while a rule is open.")
	if order := b.order(); !slices.Equal(order, []string{"first", "second"}) {
		t.Errorf("the order is %q", order)
	}
	b.click(row("second") + " h3 button")
	b.says("#note", "The order does not change while you use the list.")
	leave()
	b.until("document.querySelector('#rules > li').dataset.rule === 'second'")
	// A removed rule disappears, also while it is open.
	b.click(row("second") + " h3 button")
	a.is(func() { a.rules = a.rules[:1] })
	b.until("document.querySelectorAll('#rules > li').length === 1")
	b.says("#list-title", "1 rule")
}

func TestThePageSaysWhatToDoWhereThereIsNoRule(t *testing.T) {
	a := startAPI(t)
	b := open(t, pageOf(t, a.addr), phone)
	b.says("#none", "No limit is in force")
	b.says("#none pre", "rate_limit /login 5/1m")
	b.until("document.querySelector('#list').hidden")
	b.fits("without rules")
	a.is(a.asOfAShop)
	b.until("document.querySelectorAll('#rules > li').length === 7 && document.querySelector('#none').hidden")
}

func TestThePagesPolicyIsInForce(t *testing.T) {
	a := startAPI(t)
	other := startAPI(t)
	b := open(t, pageOf(t, a.addr), desktop, "") // the console reports everything that is blocked
	b.says("#none", "No limit is in force")
	for _, test := range []struct{ name, try, directive string }{
		{"a script of somebody else", "(() => { const s = document.createElement('script'); s.append('window.ran = 1'); document.body.append(s); })()", "script-src|require-trusted-types-for"},
		{"text as HTML", "document.body.insertAdjacentHTML('beforeend', '<img src=x>')", "require-trusted-types-for"},
		{"an attribute that is run", "(() => { const e = document.createElement('p'); e.setAttribute('onclick', 'window.ran = 2'); document.body.append(e); e.click(); })()", "script-src|require-trusted-types-for"},
		{"a style attribute", "(() => { const e = document.createElement('p'); e.setAttribute('style', 'color: red'); document.body.append(e); })()", "style-src"},
		{"another place", "fetch('http://" + other.addr + "/rate_limit/rules').catch(() => {})", "connect-src"},
		{"a picture", "(() => { const e = document.createElement('img'); e.src = 'http://" + other.addr + "/x.png'; document.body.append(e); })()", "img-src"},
		{"a form", "(() => { const f = document.createElement('form'); f.action = 'http://" + other.addr + "/'; document.body.append(f); f.submit(); })()", "form-action"},
		{"a frame", "(() => { const e = document.createElement('iframe'); e.src = 'http://" + other.addr + "/'; document.body.append(e); })()", "frame-src"},
		{"another base", "(() => { const e = document.createElement('base'); e.href = 'http://" + other.addr + "/'; document.head.append(e); })()", "base-uri"},
	} {
		js[bool](b, "(window.refusals = [], (() => { try { "+test.try+" } catch (err) {} })(), true)")
		b.until("window.refusals.some((r) => /^(" + test.directive + ")/.test(r))")
		must.Equal(t, js[string](b, "String(window.ran)"), "undefined", "%s has run", test.name)
	}
	if other.pollsSoFar() > 0 {
		t.Error("another place was asked")
	}
}

func TestEverythingOnThePageHasANameAndIsReachedByKeyboard(t *testing.T) {
	a := startAPI(t)
	a.asOfAShop()
	b := open(t, pageOf(t, a.addr), desktop)
	a.is(func() { a.deferred = []map[string]any{{"rule": "api/exports", "accepting": true}} })
	b.click(row("api/exports") + " h3 button")
	b.click("#explain > summary")
	b.click("#jobs > summary")
	b.choose("#jobs-which", "key")
	b.says(".by-requests", "No key was seen.")
	if nameless := js[[]string](b, `[...document.querySelectorAll("input, select, textarea, button, svg, dialog, ul, section")].filter((e) =>
		!(e.labels && e.labels.length) && !e.getAttribute("aria-label") && !document.getElementById(e.getAttribute("aria-labelledby")) && e.tagName !== "UL" && !e.textContent.trim()).map((e) => e.outerHTML.slice(0, 80))`); len(nameless) > 0 {
		t.Errorf("without a name: %q", nameless)
	}
	if ids := js[[]string](b, `[...document.querySelectorAll("[id]")].map((e) => e.id).filter((id, i, all) => all.indexOf(id) !== i)`); len(ids) > 0 {
		t.Errorf("there twice: %q", ids)
	}
	// Tab reaches everything that can be used, from the beginning.
	js[bool](b, "(document.activeElement.blur(), document.body.tabIndex = -1, document.body.focus(), true)")
	reached := js[int](b, `[...document.querySelectorAll("input, select, textarea, button, summary, [tabindex='0']")].filter((e) => e.checkVisibility() && !e.closest("dialog")).length`)
	seen := make(map[string]bool)
	for range reached {
		b.do(chromedp.KeyEvent(kb.Tab))
		seen[js[string](b, "(document.activeElement.dataset.n ??= String(Math.random())) + document.activeElement.tagName")] = true
		b.shows()
	}
	if len(seen) != reached || seen["BODY"] {
		t.Errorf("Tab reaches %d of %d", len(seen), reached)
	}
}

// WEIR_SCREENSHOTS=../docs/images takes the pictures of the manual again.
func TestThePageAsTheManualShowsIt(t *testing.T) {
	for _, test := range []struct {
		name   string
		size   [2]int64
		scheme string
		open   bool
	}{
		{"page.png", [2]int64{1280, 1100}, "light", true},
		{"page-dark.png", [2]int64{1280, 1100}, "dark", true},
		{"page-phone.png", [2]int64{390, 844}, "light", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := startAPI(t)
			a.asOfAShop()
			b := open(t, pageOf(t, a.addr), test.size)
			b.prefers(test.scheme)
			b.says("#live", "live, ")
			polls := 2
			if os.Getenv("WEIR_SCREENSHOTS") != "" { // as many as the page draws
				polls = 150
			}
			b.polled(a, polls)
			if test.open {
				b.click(row("shop/login") + " h3 button")
				b.says(row("shop/login")+" .by-rejections", "203.0.113.41")
				b.says(row("shop/login")+" .by-requests", "192.0.2.14")
			}
			b.do(chromedp.MouseEvent(chromedp.MouseMoved, 1, 1))
			js[bool](b, "(document.activeElement.blur(), scrollTo(0, 0), true)")
			b.fits("as the manual shows it")
			b.shot(test.name)
		})
	}
}
