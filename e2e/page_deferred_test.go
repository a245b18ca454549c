package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/proxyweir/weir/redis/redistest"
)

// line returns the selector of a line in the list of jobs, from 1. A job has two lines: the second is its request.
func line(n int) string { return fmt.Sprintf("#jobs-list tr:nth-child(%d)", n) }

// lists waits until the list of jobs has so many.
func (b *browser) lists(jobs int) {
	b.t.Helper()
	b.until(fmt.Sprintf("document.querySelectorAll('#jobs-list button').length === %d", jobs))
}

func TestThePageListsDeferredRequests(t *testing.T) {
	a := startAPI(t)
	a.asOfAShop()
	b := open(t, pageOf(t, a.addr), phone, "400 (Bad Request)")
	b.says("#rules", "shop/login")
	if js[bool](b, "document.querySelector('#jobs').checkVisibility()") {
		t.Error("the form is there, and no rule defers")
	}
	const day = 24 * time.Hour
	job := func(n int, status string, more ...any) map[string]any {
		j := map[string]any{"id": fmt.Sprintf("job-%d-of-22-letters", n), "status": status, "accepted": a.now.Add(-time.Hour), "attempts": 0, "bytes": 1536 + 2048}
		for i := 0; i < len(more); i += 2 {
			j[more[i].(string)] = more[i+1]
		}
		return j
	}
	a.is(func() {
		a.deferred = []map[string]any{{"rule": "api/exports", "accepting": true}, {"rule": "shop/login", "accepting": true}}
		a.jobs = []map[string]any{
			job(1, "running", "position", 1, "attempts", 2),
			job(2, "waiting", "position", 1234, "due", a.now.Add(10*day+time.Hour)),
			job(3, "dead", "ended", a.now.Add(-30*day), "attempts", 5, "reason", `<img src=x onerror="window.hacked=1">`),
			job(4, "done", "ended", a.now.Add(-20*day), "attempts", 1, "answered", 201, "error", "the key <b>is</b> missing"),
		}
		for n := range 96 {
			a.jobs = append(a.jobs, job(5+n, "waiting", "position", 1235+n))
		}
	})
	b.click("#jobs > summary")
	b.choose("#jobs-rule", "shop/login")
	b.choose("#jobs-which", "dead")
	b.click("#jobs-form button")
	b.lists(50)
	for n, want := range []string{"job-1-of-22-letters, its request|running|1|–|2", "job-2-of-22-letters, its request|waiting|1,234|in 10 d|0",
		`job-3-of-22-letters, its request|dead: <img src=x onerror="window.hacked=1">|–|30 d ago|5`, "job-4-of-22-letters, its request|done, answered 201|–|20 d ago|1"} {
		got := js[string](b, "((cells) => [0, 1, 2, 3, 5].map((i) => cells[i].textContent).join('|'))(document.querySelector("+quoted(line(2*n+1))+").cells)")
		if strings.Replace(got, "in 10 d 1 h", "in 10 d", 1) != want { // an hour may begin meanwhile
			t.Errorf("line %d: %s; want %s", n+1, got, want)
		}
	}
	b.fits("a list of jobs")
	b.click("#show-jobs")
	b.lists(100)
	b.click("#show-jobs") // exactly as many as fit: only the next request says that there are no more
	b.says("#jobs-said", "There are no more.")
	b.until("!document.querySelector('#show-jobs').checkVisibility()")
	b.lists(100)

	// A job opens to its request.
	b.click(line(1) + " button")
	b.says(line(2), "<b>ann</b>")
	b.says(line(2), "POST shop.example/orders/<i>1</i>")
	b.says(line(2), "2.0 kB")
	b.click(line(7) + " button")
	b.says(line(8), "Its request cannot be read: the key <b>is</b> missing")
	b.click(line(1) + " button")
	b.until("!document.querySelector(" + quoted(line(2)) + ").checkVisibility()")
	a.is(func() { a.jobs = a.jobs[1:] })
	b.click(line(1) + " button")
	b.says(line(2), `Not known: job "job-1-of-22-letters": there is no such job`)

	// Jobs of a key, with a field for each part of the key.
	b.choose("#jobs-rule", "api/exports")
	b.choose("#jobs-which", "key")
	b.says("#jobs-key label", "header:X-Api-Key")
	b.until("document.querySelectorAll('#jobs-key input').length === 2")
	js[bool](b, "(document.querySelector('#jobs-key input').focus(), true)")
	b.do(chromedp.KeyEvent("sk-1"), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent("192.0.2.7"))
	a.is(func() { a.jobs = a.jobs[:1] })
	b.polled(a, 2) // which leaves what was typed
	b.do(chromedp.KeyEvent(kb.Enter))
	b.lists(1)
	a.is(func() { a.jobs = nil })
	b.click("#jobs-form button")
	b.says("#jobs-said", "There are none.")
	a.is(func() { a.keyFails = "no answer from <b>Redis</b>" })
	b.click("#jobs-form button")
	b.says("#jobs-said .failed", "Not known: no answer from <b>Redis</b>")
	a.is(func() {
		if want := `{"rule":"shop/login","limit":50,"status":"dead","after":"50"}`; a.asked[1] != want {
			t.Errorf("asked %s, want %s", a.asked[1], want)
		}
		if want := `{"rule":"api/exports","limit":50,"key":["sk-1","192.0.2.7"]}`; a.asked[3] != want {
			t.Errorf("asked %s, want %s", a.asked[3], want)
		}
	})
	if js[bool](b, "window.hacked !== undefined") {
		t.Error("what a request has was executed")
	}
}

func TestThePageListsTheJobsOfARealCaddy(t *testing.T) {
	redis := redistest.Start(t, redistest.WithConfig("appendonly yes", "maxmemory-policy noeviction"))
	admin := freeAddr()
	c := startCaddyWith(t, admin, `rate_limit {
		store redis `+redis.Addr()+` {
			timeout 20s
			read_timeout 20s
			dial_timeout 20s
			nodes 1
		}
		zone orders {
			match {
				path /orders
			}
			key {query.customer}
			limit 1/1h
			algorithm token_bucket
			burst 1
			on_limit defer {
				max_wait 30d
			}
		}
	}
	respond /up ok
	respond /orders ok`)
	order := func(customer string) (job string) {
		t.Helper()
		eventually(t, "an order is deferred", func() bool { // the worker has just started; and orders within the limit are done at once
			r, err := c.try("POST /orders?customer="+customer, "Prefer", "respond-async")
			if err != nil {
				t.Fatal(err)
			}
			job = r.header.Get("Location")
			return r.status == http.StatusAccepted
		})
		return job[strings.LastIndex(job, "/")+1:]
	}
	bobs, first, second := order("bob"), order("ann"), order("ann")
	b := open(t, pageOf(t, admin), desktop)
	b.click("#jobs > summary")
	b.click("#jobs-form button")
	b.lists(3)
	b.says(line(1), bobs)
	b.choose("#jobs-which", "key")
	js[bool](b, "(document.querySelector('#jobs-key input').focus(), true)")
	b.do(chromedp.KeyEvent("ann"), chromedp.KeyEvent(kb.Enter))
	b.lists(2)
	b.says(line(1), first)
	b.says(line(1), "waiting")
	b.says(line(3)+" td:nth-child(3)", "2")
	b.says(line(3), second)
	b.click(line(3) + " button")
	b.says(line(4), "POST "+c.addr+"/orders")
	if r, err := c.try("DELETE /deferred/orders/" + second); err != nil || r.status != http.StatusNoContent {
		t.Fatalf("cancelled: %d, %v", r.status, err)
	}
	b.click("#jobs-form button")
	b.lists(1)
}
