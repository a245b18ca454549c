package ratelimit_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// decided has rules of every kind of which a key may have a limit of its own, or may not.
const decided = `rate_limit {
	zone plans {
		key {header.X-Key}
		on_missing_key skip
		limit 2/366d
	}
	zone tiered {
		key {header.X-Key}
		on_missing_key skip
		tiers {header.X-Plan} {
			gold 9/366d
			* 8/366d
		}
	}
	zone shadowed {
		key {header.X-Key}
		on_missing_key skip
		limit 2/366d
		enforcement shadow
	}
	zone flying {
		key {header.X-Key}
		on_missing_key skip
		concurrency 5
	}
	zone addresses {
		limit 100/366d
		except 192.0.2.66
	}
}
respond ok`

func TestAdminSaysWhatIsWrongWithADecision(t *testing.T) {
	a := startAdmin(t, behindProxy, ":PORT {\n"+decided+"\n}")
	long := strings.Repeat("x", 501)
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"limit", `{"rule":"plan","key":["acme"],"limit":"5/1m","for":"1h"}`, 404, `rule "plan": there is none of that name (did you mean plans?)`},
		{"limit", `{"rule":"plans","key":["acme","x"],"limit":"5/1m","for":"1h"}`, 400, `key: has 2 parts, and this rule's has 1: header:X-Key`},
		{"limit", `{"rule":"plans","key":["acme"],"limit":"5/1m"}`, 400, `for "": must be a duration from 1ms to 366d, such as 1h; or write until in its place, such as today`},
		{"limit", `{"rule":"plans","key":["acme"],"limit":"5/1m","for":"1h","until":"today"}`, 400, `until and for are mutually exclusive: remove one`},
		{"limit", `{"rule":"plans","key":["acme"],"limit":"5/1m","until":"2020-01-01T00:00:00Z"}`, 400, `until "2020-01-01T00:00:00Z": is past: here it is `},
		{"limit", `{"rule":"plans","key":["acme"],"limit":"5","for":"1h"}`, 400, `limit "5": has no period; write <requests>/<period>, such as 5/1m`},
		{"limit", `{"rule":"plans","key":["acme"],"limit":"unlimited","for":"1h"}`, 400, `limit "unlimited": is not available for a single key; write a large limit such as 1000000/1m`},
		{"limit", `{"rule":"plans","key":["acme"],"limit":"","for":"1h"}`, 400, `limit "": has no period`},
		{"limit", `{"rule":"plans","key":["acme"],"limit":"5/1m","for":"1h","note":"` + long + `"}`, 400, `note: has 501 bytes; must be at most 500`},
		{"limit", `{"rule":"plans","key":["acme"],"limit":"5/1m","for":"1h","by":"a\nb"}`, 400, `by: must be one line of printable text`},
		{"limit", `{"rule":"plans","key":["acme"],"limit":"5/1m","for":"1h","why":"x"}`, 400, `unknown field`},
		{"limit", `{"rule":"tiered","key":["acme"],"limit":"+5","for":"1h"}`, 400, `limit "+5": the rule's tiers say how much the key has`},
		{"limit", `{"rule":"flying","key":["acme"],"limit":"5/1m","for":"1h"}`, 400, `limit "5/1m": the rule limits how many requests are in flight, and nothing else`},
		{"limit", `{"rule":"shadowed","key":["acme"],"limit":"5/1m","for":"1h"}`, 409, `rule "shadowed": is a shadow, and limits nobody`},
		{"limit", `{"rule":"addresses","key":["192.0.2.66"],"limit":"5/1m","for":"1h"}`, 409, `rule "addresses": 192.0.2.66 is among the addresses that the rule exempts`},
		{"limit", `{"rule":"addresses","key":["192.0.2.0/24"],"limit":"5/1m","for":"1h"}`, 400, `key: client_ip: `},
		{"credit", `{"rule":"plans","key":["acme"],"units":0}`, 400, `units 0: must be a whole number from 1 to 1000000000`},
		{"credit", `{"rule":"flying","key":["acme"],"units":1}`, 409, `rule "flying": requests in flight end by themselves`},
		{"end", `{"rule":"plans","id":"x"}`, 404, `id "x": is none of the rule's top keys any more, nor of its exceptions`},
		{"exceptions?rule=plan", "", 404, `rule "plan": there is none of that name (did you mean plans?)`},
		{"exceptions?n=1001", "", 400, `n "1001": must be a whole number from 1 to 1000`},
		{"exceptions?page=2", "", 400, `parameter "page"`},
	} {
		status, answer := a.call(c.path, c.body)
		if got := fmt.Sprint(answer["error"]); status != c.status || !strings.Contains(got, c.want) {
			t.Errorf("%s %s: %d %s, want %d %s", c.path, c.body, status, got, c.status, c.want)
		}
	}
	must.Equal(t, fmt.Sprint(a.ask("exceptions", "")["total"]), "0", "exceptions after errors alone")
}

// A limit of a key outlives reloads that change the rule, in zones and in files; a block outlives those that change where the rule counts.
func TestADecisionOutlivesReloads(t *testing.T) {
	for _, kind := range []string{"zones", "files"} {
		t.Run(kind, func(t *testing.T) {
			s := newServer(t)
			a := &admin{s, freeAddr(t)}
			load := func(limit, algorithm string) {
				t.Helper()
				if kind == "files" {
					s.put("a.yaml", rulesOf("{name: plans, key: 'header:X-Key', on_missing_key: skip, limit: "+limit+", algorithm: "+algorithm+"}"))
					a.reloadWith(behindProxy, ":PORT {\nrate_limit {\nrules_file DIR/rules/*.yaml\n}\nrespond ok\n}")
					return
				}
				a.reloadWith(behindProxy, ":PORT {\nrate_limit {\nzone plans {\nkey {header.X-Key}\non_missing_key skip\nlimit "+limit+"\nalgorithm "+algorithm+"\n}\n}\nrespond ok\n}")
			}
			status := func(key string) string {
				r := a.do("/", "X-Key", key)
				return fmt.Sprint(r.status, " of ", r.header.Get("X-RateLimit-Limit"))
			}
			load("1/366d", "fixed_window")
			key := t.Name()
			a.ask("limit", `{"rule":"plans","key":["`+key+`"],"limit":"+2","for":"1h","note":"why","by":"me"}`)
			a.ask("block", `{"rule":"plans","key":["eve`+key+`"],"for":"1h"}`)
			must.Equal(t, status(key), "200 of 3", "at once")
			must.Equal(t, status("other"+key), "200 of 1", "another key")
			load("2/366d", "fixed_window")
			must.Equal(t, status(key), "200 of 4", "after a reload with another number")
			must.Equal(t, status("eve"+key), "429 of 2", "a block after a reload")
			load("5/365d", "token_bucket")
			must.Equal(t, status(key), "200 of 7", "after one with another algorithm")
			must.Equal(t, status("eve"+key), "429 of 5", "a block after it")
			list := a.ask("exceptions?rule=plans", "")
			must.Contain(t, fmt.Sprint(list), "why")
			must.Equal(t, fmt.Sprint(a.ask("health", "")["exceptions"]), fmt.Sprint(list["total"]), "health counts them")
			id := fmt.Sprint(list["exceptions"].([]any)[0].(map[string]any)["id"])
			for _, path := range []string{"end", "unblock"} { // by id, as the page does; one of the two is of the other kind
				a.ask(path, `{"rule":"plans","id":"`+id+`"}`)
			}
			a.ask("end", `{"rule":"plans","key":["`+key+`"]}`)
			a.ask("reset", `{"rule":"plans","key":["eve`+key+`"]}`)
			must.Equal(t, status("eve"+key), "200 of 5", "a reset ends the block")
			must.Equal(t, status(key), "200 of 5", "the end")
			must.Equal(t, fmt.Sprint(a.ask("exceptions", "")["total"]), "0", "exceptions")
		})
	}
}

// A site's page shows decisions, and takes none.
func TestThePageOfASiteOnlyListsDecisions(t *testing.T) {
	a := startAdmin(t, behindProxy, ":PORT {\nrate_limit_page\n"+decided+"\n}")
	a.ask("limit", `{"rule":"plans","key":["acme"],"limit":"+2","for":"1h"}`)
	r := a.do("/rate_limit/exceptions")
	must.Equal(t, r.status, http.StatusOK, "status")
	a.ask("end", `{"rule":"plans","key":["acme"]}`)
}

// Defect found: a block ended with the process, and nothing said so.
func TestADecisionSaysIfARestartEndsIt(t *testing.T) {
	for global, want := range map[string]string{"": "map[until_restart:true]", "rate_limit {\nexceptions_file " + filepath.Join(t.TempDir(), "kept.json") + "\n}\n": "map[]"} {
		a := startAdmin(t, behindProxy+global, ":PORT {\n"+decided+"\n}")
		must.Equal(t, fmt.Sprint(a.ask("block", `{"rule":"plans","key":["eve"],"for":"1h"}`)), want, global)
		a.ask("unblock", `{"rule":"plans","key":["eve"]}`)
	}
}

// The commands ask the admin endpoint of a running Caddy, by their own names and below key.
func TestTheCommandsSeeAndChangeWhatACaddyCounts(t *testing.T) {
	a := startAdmin(t, behindProxy, ":PORT {\nrate_limit {\nzone orders {\nkey {header.X-Key}\non_missing_key skip\nlimit 2/366d\n}\n}\nrespond ok\n}")
	key := t.Name()
	says := func(want string, args ...string) {
		t.Helper()
		out, problems, code := weir(t, t.TempDir(), append(args, "--address", a.base)...)
		if code != 0 || !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("%q: exit code %d, %s%s, want %s", args, code, out, problems, want)
		}
	}
	for _, want := range []int{200, 200, 429} {
		must.Equal(t, a.do("/", "X-Key", key).status, want)
	}
	of := []string{"--rule", "orders", "--key", key}
	explain := []string{"explain", "--url", "http://" + a.addr + "/", "--ip", "192.0.2.7", "--header", "X-Key: " + key}
	says(" 2/366d sliding_window_counter 0 rejects for ", explain...)
	says("s verdict: reject", explain...)
	says(" 3 1 0", "top", "--rule", "orders")
	says(" 3 1 ", "top", "--rule", "orders", "--by", "rejections")
	says("1 key", append([]string{"reset"}, of...)...)
	must.Equal(t, a.do("/", "X-Key", key).status, 200, "after reset")
	says("until 2", append([]string{"block", "--until", "month", "--note", "ticket"}, of...)...)
	must.Equal(t, a.do("/", "X-Key", key).status, 429, "after block")
	says(" block 2", "key", "list", "--rule", "orders")
	says(" (block or penalty) verdict: reject", explain...)
	says("done; kept in this process alone: a restart forgets it, unless the global option has an exceptions_file", append([]string{"block", "--for", "1h"}, of...)...)
	says("1 key", append([]string{"key", "unblock"}, of...)...)
	says("until 2", append([]string{"limit", "+7", "--for", "1h"}, of...)...)
	says(" 9/366d sliding_window_counter 9 allows verdict: allow", explain...)
	says("1 key", append([]string{"key", "end"}, of...)...)
	must.Equal(t, a.do("/", "X-Key", key).status, 200, "a request that is given back")
	says("1 unit given back", append([]string{"credit", "5"}, of...)...)
	if _, problems, code := weir(t, t.TempDir(), append([]string{"reset", "--address", a.base}, "--rule", "order", "--key", "x")...); code != 1 || !strings.Contains(problems, `HTTP 404: rule "order": there is none of that name (did you mean orders?)`) {
		t.Errorf("exit code %d: %s", code, problems)
	}
	watch := exec.Command(os.Args[0], "rate-limit", "watch", "--interval", "100ms", "--address", a.base)
	watch.Env = append(os.Environ(), asCaddy+"=1")
	stdin, err := watch.StdinPipe() // the command ends when it is closed
	must.Succeed(t, err)
	defer stdin.Close()
	out, err := watch.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, watch.Start())
	rejects := regexp.MustCompile(`orders: [0-9.]+ allowed/s, [1-9][0-9.]* rejected/s`)
	for lines, seen := bufio.NewScanner(out), false; !seen; seen = rejects.MatchString(lines.Text()) {
		for range 3 {
			a.do("/", "X-Key", key)
		}
		if !lines.Scan() {
			t.Fatal("watch has ended by itself")
		}
	}
	must.Succeed(t, watch.Process.Signal(os.Interrupt))
	_, _ = io.Copy(io.Discard, out)
	must.Succeed(t, watch.Wait())
}
