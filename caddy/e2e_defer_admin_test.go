package ratelimit_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// deferringShop runs a shop before a warehouse with an admin endpoint. Each customer may have four jobs.
func deferringShop(t *testing.T, up *warehouse, lines ...string) *admin {
	t.Helper()
	lines = append(lines, "max_jobs 100 4")
	return startAdmin(t, "", ":PORT {\n"+withMetrics(shop(durably(t), up, lines...))+"\n}")
}

// of returns the fields of a customer, who wants to wait.
func of(customer string) []string { return []string{"X-Customer", customer, "Prefer", "respond-async"} }

// runsAndWait has a customer order until one job runs, and then three more that wait. It returns where they are.
func (a *admin) runsAndWait(customer string) []string {
	a.t.Helper()
	locations := []string{a.deferred("one-of-"+customer, "X-Customer", customer).header.Get("Location")}
	a.awaitJob(locations[0], "running")
	for _, body := range []string{"two", "three", "four"} {
		r := a.must("POST", "/orders?token=hidden", body+"-of-"+customer, of(customer)...)
		if r.status != http.StatusAccepted {
			a.t.Fatalf("%s: status %d: %s", body, r.status, r.body)
		}
		locations = append(locations, r.header.Get("Location"))
	}
	return locations
}

// badGateway answers deferred requests with a 502, and others with a 201.
func badGateway(w http.ResponseWriter, a arrival) {
	if a.isDeferred() {
		w.WriteHeader(http.StatusBadGateway)
		_, _ = w.Write([]byte("broken"))
		return
	}
	w.WriteHeader(http.StatusCreated)
}

func idIn(location string) string { return location[strings.LastIndex(location, "/")+1:] }

func TestOperatorsSeeDeferredRequests(t *testing.T) {
	up := newWarehouse(t)
	a := deferringShop(t, up)
	jobs := a.runsAndWait("ann")
	if r := a.must("POST", "/orders", "five", of("ann")...); r.status != http.StatusTooManyRequests {
		t.Errorf("the fifth: %d %s", r.status, r.body)
	}

	queue := at(t, a.ask("deferred", ""), "queues", 0)
	for field, want := range map[string]string{
		"rule": "orders", "path": "/deferred/orders", "accepting": "true", "waiting": "3", "running": "1", "dead": "0", "max_jobs": "100", "max_wait_seconds": "3600",
	} {
		wantAt(t, queue, want, field)
	}
	wantAt(t, queue, "4", "total", "accepted")
	eventually(t, "the health has them", func() bool { return at(t, a.ask("health", ""), "deferred", 0, "waiting") == 3.0 })
	if at(t, queue, "bytes").(float64) < 4*1536 || at(t, queue, "oldest_seconds").(float64) < 0 {
		t.Errorf("%v", queue)
	}

	// All jobs page by page, in the order in which they were accepted, and those of the customer.
	page := a.ask("deferred?rule=orders&limit=3", "")
	rest := a.ask("deferred?limit=3&after="+at(t, page, "next").(string), "")
	mine := a.ask("deferred?key=ann", "")
	for body, same := range map[string]any{`{"limit":3}`: page, `{"rule":"orders","limit":3,"after":"` + at(t, page, "next").(string) + `"}`: rest, `{"key":["ann"]}`: mine, `{"status":"dead"}`: a.ask("deferred?status=dead", "")} {
		if got := a.ask("deferred", body); !reflect.DeepEqual(got, same) {
			t.Errorf("POST %s: %v, and GET %v", body, got, same)
		}
	}
	for i, location := range jobs {
		list, n := page, i
		if i == 3 {
			list, n = rest, 0
		}
		wantAt(t, list, idIn(location), "jobs", n, "id")
		wantAt(t, mine, idIn(location), "jobs", i, "id")
		wantAt(t, mine, fmt.Sprint(i+1), "jobs", i, "position")
	}
	if rest["next"] != nil || len(at(t, rest, "jobs").([]any)) != 1 || len(at(t, a.ask("deferred?key=bob", ""), "jobs").([]any)) != 0 {
		t.Errorf("the rest: %v", rest)
	}

	// What is in a request is in no list, and its secrets are in no answer.
	one := a.ask("deferred/job?id="+idIn(jobs[1]), "")
	for field, want := range map[string]string{"status": "waiting", "method": "POST", "request_path": "/orders", "host": "shop.example", "body_bytes": "10", "attempts": "0"} {
		wantAt(t, one, want, field)
	}
	if key := fmt.Sprint(at(t, one, "key", 0)); !strings.HasPrefix(key, "…#") { // as of all keys from header fields, which may be credentials
		t.Errorf("key %s", key)
	}
	for _, answer := range []any{page, one, mine} {
		if text := fmt.Sprint(answer); strings.Contains(text, "hidden") || strings.Contains(text, "two-of-ann") {
			t.Errorf("it has what was sent: %s", text)
		}
	}

	for series, want := range map[string]string{
		`weir_deferred_jobs{rule="orders",state="waiting"}`:       "3",
		`weir_deferred_jobs{rule="orders",state="running"}`:       "1",
		`weir_deferred_jobs{rule="orders",state="dead"}`:          "0",
		`weir_deferred_total{outcome="accepted",rule="orders"}`:   "4",
		`weir_deferred_total{outcome="done",rule="orders"}`:       "0",
		`weir_deferred_refused_total{reason="key",rule="orders"}`: "1",
		`weir_deferred_accepting{rule="orders"}`:                  "1",
		`weir_deferred_max_jobs{rule="orders"}`:                   "100",
		`weir_deferred_max_wait_seconds{rule="orders"}`:           "3600",
		`weir_deferred_attempts_total{rule="orders"}`:             "1",
	} {
		eventually(t, series+" "+want, func() bool { return a.metric(series) == want })
	}
	up.open()
	a.awaitJob(jobs[3], "done")
	eventually(t, "all are done", func() bool {
		return a.metric(`weir_deferred_total{outcome="done",rule="orders"}`) == "4" && a.metric(`weir_deferred_oldest_seconds{rule="orders"}`) == "0"
	})
}

func TestOperatorsCancelDrainAndRetry(t *testing.T) {
	up := newWarehouse(t)
	up.answer = badGateway
	a := deferringShop(t, up)
	jobs := a.runsAndWait("ann")
	post := func(endpoint, body string, want int) map[string]any {
		t.Helper()
		status, answer := a.call("deferred/"+endpoint, body)
		if status != want {
			t.Fatalf("%s %s: status %d, want %d: %v", endpoint, body, status, want, answer)
		}
		return answer
	}
	post("cancel", `{"id":"`+idIn(jobs[0])+`"}`, http.StatusConflict) // it runs
	wantAt(t, post("cancel", `{"rule":"orders","id":"`+idIn(jobs[2])+`"}`, http.StatusOK), "1", "cancelled")
	post("cancel", `{"id":"`+idIn(jobs[2])+`"}`, http.StatusNotFound)
	wantAt(t, post("cancel", `{"key":["ann"]}`, http.StatusOK), "2", "cancelled")
	post("retry", `{"id":"`+idIn(jobs[0])+`"}`, http.StatusConflict)

	// A queue that is drained accepts nothing, on any node, and does what it has.
	post("drain", `{"drain":true}`, http.StatusOK)
	if r := a.must("POST", "/orders", "later", of("ann")...); r.status != http.StatusTooManyRequests {
		t.Errorf("drained: %d %s", r.status, r.body)
	}
	wantAt(t, a.ask("deferred", ""), "false", "queues", 0, "accepting")
	eventually(t, "the metric says so", func() bool {
		return a.metric(`weir_deferred_accepting{rule="orders"}`) == "0" && a.metric(`weir_deferred_refused_total{reason="drain",rule="orders"}`) == "1"
	})
	up.open()
	if o := a.awaitJob(jobs[0], "dead"); o.Attempts != 1 {
		t.Errorf("%+v", o)
	}
	dead := a.ask("deferred?status=dead", "")
	wantAt(t, dead, idIn(jobs[0]), "jobs", 0, "id")
	wantAt(t, dead, "502", "jobs", 0, "answered")

	up.mu.Lock()
	up.answer = nil
	up.mu.Unlock()
	wantAt(t, post("retry", `{"all":true}`, http.StatusOK), "1", "retried")
	a.awaitJob(jobs[0], "done")
	post("drain", `{"drain":false}`, http.StatusOK)
	wantAt(t, a.ask("deferred", ""), "true", "queues", 0, "accepting")
}

// The command exports what is dead, with all that is stored if it is asked for, and purges it.
func TestDeferredRequestsAreExportedAndPurged(t *testing.T) {
	up := newWarehouse(t)
	up.answer = badGateway
	up.open()
	a := deferringShop(t, up, "headers Authorization", "encrypt "+deferKey)
	const customers = 3
	for i := range customers {
		customer := fmt.Sprint("c", i)
		r := a.deferred("order-of-"+customer, "X-Customer", customer, "Authorization", "Bearer secret")
		a.awaitJob(r.header.Get("Location"), "dead", "Authorization", "Bearer secret")
	}
	command := func(want int, args ...string) (out, problems string) {
		t.Helper()
		out, problems, code := weir(t, t.TempDir(), append([]string{"deferred"}, args...)...)
		if code != want {
			t.Fatalf("%v: exit %d, want %d: %s%s", args, code, want, out, problems)
		}
		return out, problems
	}
	for _, contents := range []bool{false, true} {
		args := []string{"export", "--address", a.base}
		if contents {
			args = append(args, "--contents")
		}
		out, _ := command(0, args...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if len(lines) != customers {
			t.Fatalf("%d lines, want %d:\n%s", len(lines), customers, out)
		}
		if strings.Contains(out, "Bearer secret") != contents {
			t.Errorf("contents %v:\n%s", contents, out)
		}
		for i, line := range lines {
			var job any
			if err := json.Unmarshal([]byte(line), &job); err != nil {
				t.Fatal(err)
			}
			if contents {
				wantAt(t, job, base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "order-of-c%d", i)), "contents", "body")
				wantAt(t, job, "/orders?kind=book", "contents", "uri")
				wantAt(t, job, base64.StdEncoding.EncodeToString([]byte("broken")), "contents", "result", "body")
				wantAt(t, job, "502", "contents", "result", "status")
			}
		}
	}
	for _, step := range []struct{ args, want string }{
		{"--status dead --older-than 1h --yes", "0 requests removed"},
		{"--status dead --older-than 0s", "3 requests would be removed; write --yes to remove them"},
		{"--status dead --older-than 0s --yes", "3 requests removed"},
		{"--status dead --older-than 0s --yes", "0 requests removed"},
	} {
		if out, _ := command(0, append([]string{"purge", "--address", a.base}, strings.Fields(step.args)...)...); strings.TrimSpace(out) != step.want {
			t.Errorf("purge %s: %s, want %s", step.args, out, step.want)
		}
	}
	for _, args := range [][]string{
		{"purge", "--status", "open", "--older-than", "1h"}, {"purge", "--status", "dead", "--older-than", "old"}, {"purge", "--status", "dead"},
		{"export", "--status", "gone", "--address", a.base}, {"export", "--rule", "order", "--address", a.base}, {"export", "--address", "127.0.0.1:1"},
	} {
		if _, problems := command(1, args...); !strings.Contains(problems, "wanted") && !strings.Contains(problems, "must be one of open, dead, done") &&
			!strings.Contains(problems, "did you mean orders") && !strings.Contains(problems, "--address says where it is") && !strings.Contains(problems, "older-than") {
			t.Errorf("%v: %s", args, problems)
		}
	}
}

func TestTheAdminAPISaysWhatIsWrongAboutDeferredRequests(t *testing.T) {
	a := deferringShop(t, newWarehouse(t))
	id := strings.Repeat("A", 22)
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"deferred?rule=order", "", 404, "did you mean orders?"},
		{"deferred?status=waiting", "", 400, `status "waiting": must be one of open, dead, done`},
		{"deferred?limit=1001", "", 400, `limit "1001": must be a whole number from 1 to 1000`},
		{"deferred", `{"limit":0}`, 400, `limit "0": must be a whole number from 1 to 1000`},
		{"deferred", `{"key":["a"],"after":"1.x"}`, 400, "remove status and after"},
		{"deferred", `{"keys":["a"]}`, 400, "keys"},
		{"deferred?after=x", "", 400, "must be what the answer before had as next"},
		{"deferred?key=a&status=dead", "", 400, "remove status and after"},
		{"deferred?key=a&key=b", "", 400, "key"},
		{"deferred?rules=orders", "", 400, "rule"},
		{"deferred/job", "", 404, `job "": there is no such job`},
		{"deferred/job?id=" + id, "", 404, "there is no such job"},
		{"deferred/cancel", "{}", 400, "id, or key: one of them is wanted"},
		{"deferred/cancel", `{"id":"` + id + `","key":["a"]}`, 400, "one of them is wanted"},
		{"deferred/cancel", `{"id":"` + id + `"}`, 404, "there is no such job"},
		{"deferred/retry", `{}`, 400, "id, or all: one of them is wanted"},
		{"deferred/retry", `{"id":"` + id + `","all":true}`, 400, "one of them is wanted"},
		{"deferred/retry", `{"id":"` + id + `"}`, 404, "there is no such job"},
		{"deferred/drain", `{}`, 400, "drain: is missing"},
		{"deferred/drain", `{"drain":true,"rule":"other"}`, 404, `rule "other"`},
		{"deferred/purge", `{"status":"open","older_than":"1h"}`, 400, "must be one of dead, done"},
		{"deferred/purge", `{"status":"dead"}`, 400, `older_than "": must be a duration such as 24h`},
		{"deferred/purge", `{"status":"dead","older_then":"1h"}`, 400, "older_th"},
		{"deferred/export", `{"status":"all"}`, 400, "must be one of open, dead, done"},
		{"deferred/export", `{"status":"dead","after":"1.x"}`, 400, "must be what the answer before had as next"},
	} {
		status, answer := a.call(c.path, c.body)
		if status != c.status || !strings.Contains(fmt.Sprint(answer["error"]), c.want) {
			t.Errorf("%s %s: %d %v, want %d %s", c.path, c.body, status, answer, c.status, c.want)
		}
	}
	without := startAdmin(t, "", ":PORT {\nrate_limit 5/1h\nrespond ok\n}")
	if queues := at(t, without.ask("deferred", ""), "queues").([]any); len(queues) != 0 {
		t.Errorf("%v", queues)
	}
	if status, answer := without.call("deferred/drain", `{"drain":true}`); status != http.StatusNotFound {
		t.Errorf("%d %v", status, answer)
	}
}
