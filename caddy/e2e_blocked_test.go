package ratelimit_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// blocking has rules whose keys are addresses, and others.
const blocking = `rate_limit {
	zone login {
		match {
			path /login
		}
		limit 1/1h
		penalty 1h
	}
	zone networks {
		match {
			path /networks
		}
		limit 1/1h
		ipv6_prefix 48
		penalty 1h
	}
	zone jittered {
		match {
			path /jittered
		}
		limit 1/1m
		algorithm fixed_window
		penalty 1h
		jitter 0.2
	}
	zone windows {
		match {
			path /windows
		}
		limit 1/1h
		algorithm fixed_window
	}
	zone named {
		match {
			path /named
		}
		key {header.X-Key}
		limit 1/1h
		penalty 1h
	}
	zone others {
		match {
			path /others
		}
		except 198.51.100.66 2001:db8:66::66
		limit 1000/1h
	}
}
respond ok`

// blocked returns the list as text, without the times, and its ETag.
func (a *admin) blocked(query string, fields ...string) (lines, etag string, status int) {
	a.t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://"+a.base+"/rate_limit/blocked?format=text"+query, nil)
	must.Succeed(a.t, err)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	must.Succeed(a.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must.Succeed(a.t, err)
	var list []string
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if _, err := time.Parse(time.RFC3339, words[2]); err != nil {
			a.t.Errorf("%s: %v", line, err)
		}
		list = append(list, strings.Join(append(words[:2], words[3:]...), " "))
	}
	return strings.Join(list, "\n"), response.Header.Get("ETag"), response.StatusCode
}

func TestTheListOfBlockedAddressesHasPenaltiesAndBlocks(t *testing.T) {
	a := startAdmin(t, behindProxy, ":PORT {\n"+blocking+"\n}")
	unwanted := func(path, client string) {
		t.Helper()
		for range 2 {
			a.do(path, "X-Forwarded-For", client, "X-Key", client)
		}
	}
	unwanted("/login", "198.51.100.1")
	unwanted("/jittered", "198.51.100.9")
	lines, etag, _ := a.blocked("")
	must.Equal(t, lines, "", "before somebody asks, nothing is remembered")
	lines, same, status := a.blocked("&wait=1ms", "If-None-Match", etag)
	must.Equal(t, fmt.Sprint(lines, same, status), etag+"304", "where nothing has changed")

	changed := make(chan string)
	go func() {
		lines, _, _ := a.blocked("&wait=1m", "If-None-Match", etag)
		changed <- lines
	}()
	unwanted("/login", "198.51.100.1")
	must.Equal(t, awaitOne(t, "the answer to who waits", changed), "198.51.100.1 other penalty login", "a penalty that had begun before")

	unwanted("/jittered", "198.51.100.9")
	unwanted("/networks", "2001:db8:1:2::3")
	unwanted("/networks", "2001:db8:66:0::7")
	unwanted("/windows", "198.51.100.2") // is over its limit, and no more
	unwanted("/named", "198.51.100.3")   // what a client writes is no address of its
	unwanted("/login", "198.51.100.66")
	a.ask("block", `{"rule":"windows","key":["198.51.100.4"],"for":"1h"}`)
	a.ask("block", `{"rule":"named","key":["198.51.100.5"],"for":"1h"}`)
	a.ask("block", `{"rule":"networks","key":["2001:db8:9::/48"],"for":"1h"}`)
	must.Succeed(t, func() error { _, err := http.Get("http://" + a.addr + "/login"); return err }())
	a.do("/login") // of the proxy itself
	want := strings.Join([]string{
		"127.0.0.1 spare penalty login",
		"198.51.100.1 other penalty login",
		"198.51.100.4 other block windows",
		"198.51.100.66 spare penalty login",
		"198.51.100.9 other penalty jittered",
		"2001:db8:1:2::3 other penalty networks",
		"2001:db8:66::7 spare penalty networks",
		"2001:db8:9::/48 other block networks",
	}, "\n")
	lines, etag, _ = a.blocked("")
	must.Equal(t, lines, want, "the list")

	status, answer := a.call("blocked", "")
	must.Equal(t, status, 200, "JSON")
	must.Equal(t, `"`+fmt.Sprint(answer["version"])+`"`, etag, "the version")
	wantAt(t, answer, "trusted proxy", "addresses", 0, "spare")
	wantAt(t, answer, "the rule others exempts it", "addresses", 3, "spare")
	wantAt(t, answer, "false", "addresses", 1, "peer")

	a.ask("unblock", `{"rule":"login","key":["198.51.100.1"]}`)
	a.ask("unblock", `{"rule":"windows","key":["198.51.100.4"]}`)
	a.ask("reset", `{"rule":"login","key":["198.51.100.66"]}`)
	a.do("/networks", "X-Forwarded-For", "2001:db8:9:9::9")
	lines, _, _ = a.blocked("&wait=5s", "If-None-Match", etag)
	must.Equal(t, lines, strings.Join([]string{
		"127.0.0.1 spare penalty login",
		"198.51.100.9 other penalty jittered",
		"2001:db8:1:2::3 other penalty networks",
		"2001:db8:66::7 spare penalty networks",
		"2001:db8:9:9::9 other block networks",
	}, "\n"), "what is ended is gone, and of a network the address that comes is told")

	a.reloadWith(behindProxy, ":PORT {\n"+strings.Replace(blocking, "zone networks", "zone renamed", 1)+"\n}")
	lines, _, _ = a.blocked("")
	must.Equal(t, lines, "127.0.0.1 spare penalty login\n198.51.100.9 other penalty jittered", "after a reload, of a rule that is gone")
}

func TestTheListOfBlockedAddressesTellsPeers(t *testing.T) {
	a := startAdmin(t, "", ":PORT {\n"+blocking+"\n}")
	a.blocked("")
	for range 2 {
		a.do("/windows", "X-Forwarded-For", "198.51.100.1") // which nobody trusts
		a.do("/login")
	}
	must.Equal(t, first(a.blocked("")), "127.0.0.1 peer penalty login", "the list")
	a.ask("block", `{"rule":"windows","key":["127.0.0.1"],"for":"1s"}`)
	must.Contain(t, first(a.blocked("")), "127.0.0.1 other block windows")
	a.do("/windows")
	lines, etag, _ := a.blocked("")
	must.Contain(t, lines, "127.0.0.1 peer block windows")
	must.Equal(t, first(a.blocked("&wait=10s", "If-None-Match", etag)), "127.0.0.1 peer penalty login", "when the block is over")
	a.reloadWith("", ":PORT {\n"+strings.ReplaceAll(blocking, "penalty 1h", "")+"\n}")
	must.Equal(t, first(a.blocked("")), "", "after a reload without the penalty")
}

func first(lines, _ string, _ int) string { return lines }

// Defect found: whom a balancer names in front of a connection was taken for its peer, so that anybody who can name addresses had them kept out. Here something
// else is around the connection, too: what refuses HTTP/2.
func TestTheListOfBlockedAddressesSparesBalancersOfThePROXYProtocol(t *testing.T) {
	a := startAdmin(t, `servers {
		protocols h1
		listener_wrappers {
			proxy_protocol {
				allow 127.0.0.0/8
			}
		}
	}`, ":PORT {\n"+blocking+"\n}")
	a.blocked("")
	for _, header := range []string{"PROXY TCP4 198.51.100.7 127.0.0.1 1 80\r\n", "PROXY UNKNOWN\r\n"} {
		for range 2 {
			conn, err := net.Dial("tcp", a.addr)
			must.Succeed(t, err)
			_, err = io.WriteString(conn, header+"GET /login HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n")
			must.Succeed(t, err)
			_, err = io.ReadAll(conn)
			must.Succeed(t, err)
			must.Succeed(t, conn.Close())
		}
	}
	must.Equal(t, first(a.blocked("")), "127.0.0.1 spare penalty login\n198.51.100.7 other penalty login")
}

func TestTheListOfBlockedAddressesSaysWhatIsWrong(t *testing.T) {
	a := startAdmin(t, "", ":PORT {\n"+blocking+"\n}")
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"blocked?format=xml", "", 400, `format "xml": must be json or text`},
		{"blocked?wait=2m", "", 400, `wait "2m": must be a duration from 0s to 1m, such as 30s`},
		{"blocked?wait=soon", "", 400, `wait "soon": must be a duration from 0s to 1m, such as 30s`},
		{"blocked?version=1", "", 400, `parameter "version"`},
		{"blocked", "{}", 405, `method POST: blocked takes GET`},
	} {
		status, answer := a.call(c.path, c.body)
		if got := fmt.Sprint(answer["error"]); status != c.status || !strings.Contains(got, c.want) {
			t.Errorf("%s %s: %d %s, want %d %s", c.path, c.body, status, got, c.status, c.want)
		}
	}
	r, err := http.NewRequest(http.MethodGet, "http://"+a.base+"/rate_limit/blocked", nil)
	must.Succeed(t, err)
	for accept, want := range map[string]string{"": "application/json", "text/plain": "text/plain; charset=utf-8", "application/json, text/plain": "application/json", "text/plain, */*": "text/plain; charset=utf-8"} {
		r.Header.Set("Accept", accept)
		response, err := http.DefaultClient.Do(r)
		must.Succeed(t, err)
		must.Succeed(t, response.Body.Close())
		must.Equal(t, response.Header.Get("Content-Type"), want, "Accept: %s", accept)
	}
}
