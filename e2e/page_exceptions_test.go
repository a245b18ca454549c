package e2e

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// The page shows what people have decided for single keys, with who and why, and an operator ends it.
func TestThePageShowsExceptionsAndEndsThem(t *testing.T) {
	a := startAPI(t)
	a.asOfAShop()
	id := keyID([]string{"203.0.113.41"})
	a.is(func() {
		a.excepted = []map[string]any{
			{"rule": "shop/login", "key": []string{"203.0.113.41"}, "id": id, "kind": "limit", "limit": "+1000", "until": a.now.Add(3 * time.Hour), "made": a.now, "note": "<b>launch</b>", "by": "ann@ops"},
			{"rule": "gone", "key": []string{"a…#1"}, "kind": "block", "until": a.now.Add(time.Hour), "made": a.now},
		}
	})
	b := open(t, pageOf(t, a.addr), desktop)
	for _, want := range []string{"shop/login", "203.0.113.41", "+1000", "in 2 h", "<b>launch</b>", "ann@ops", "blocked"} {
		b.says("#excepted-list", want)
	}
	b.says("#excepted-more", "and 3 more")
	must.Equal(t, js[int](b, "document.querySelectorAll('#excepted-list button').length"), 1, "buttons: that of a rule which this Caddy does not have is missing")
	b.click("#excepted-list button")
	b.says("#confirm-text", "End the limit that this key was given in shop/login?")
	b.click("#confirm-yes")
	b.says("#key-said", "The key has the rule's limit again.")
	acted := a.actions()
	body, _ := json.Marshal(acted[0].body)
	must.Equal(t, acted[0].path+" "+string(body), `/rate_limit/end {"id":"`+id+`","rule":"shop/login"}`)
	b.until("document.querySelector('#excepted').hidden")
}

// An operator gives a key a limit until a time, and units back, and says why.
func TestThePageGivesLimitsAndUnits(t *testing.T) {
	a := startAPI(t)
	a.asOfAShop()
	b := open(t, pageOf(t, a.addr), desktop)
	login := row("shop/login")
	b.click(login + " h3 button")
	b.click(login + " button.key")
	b.says("#key-state", "may pass")
	sent := func(want string) {
		t.Helper()
		acted := a.actions()
		last := acted[len(acted)-1]
		delete(last.body, "id")
		body, _ := json.Marshal(last.body)
		must.Equal(t, last.path+" "+string(body), want)
	}
	b.click("[data-do=limit]")
	b.until("document.activeElement.id === 'what' && document.querySelector('#what-label').textContent === 'Limit, such as +1000 or 500/1m'")
	b.choose("#what", "more")
	b.click("#confirm-yes")
	b.until("document.querySelector('#what:invalid') !== null && !document.querySelector('#confirm').hidden")
	b.choose("#what", "+1000")
	b.choose("#for", "today")
	b.choose("#why", "launch")
	b.click("#confirm-yes")
	b.says("#key-said", "The key has a limit of its own.")
	sent(`/rate_limit/limit {"limit":"+1000","note":"launch","rule":"shop/login","until":"today"}`)

	b.click("[data-do=credit]")
	must.Equal(t, js[bool](b, "document.querySelector('#confirm-for').hidden && document.querySelector('#what').value === '' && document.querySelector('#why').value === ''"), true, "the form is empty, without a time")
	b.choose("#what", "25")
	b.click("#confirm-yes")
	b.says("#key-said", "The units were given back.")
	sent(`/rate_limit/credit {"rule":"shop/login","units":25}`)

	b.click("[data-do=end]") // which is there now
	b.click("#confirm-yes")
	b.says("#key-said", "The key has the rule's limit again.")
	sent(`/rate_limit/end {"rule":"shop/login"}`)
	must.Equal(t, js[bool](b, "document.querySelector('[data-do=end]').hidden"), true, "the button is gone")
}
