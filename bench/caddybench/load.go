package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"time"
)

const connections = 16

// outcome is the result of a load.
type outcome struct {
	requests int
	rejected int // requests that were not answered with success
	accepted int // requests that were answered with 202; wrk does not say
}

// generator puts load on an address for some time: requests on persistent connections, each sent after the answer to the one before.
type generator struct {
	name string
	run  func(address string, keys int, length time.Duration) (outcome, error)
}

// pickLoad returns wrk if it is installed, otherwise the generator below.
func pickLoad(work string, builtin bool) generator {
	wrk, err := exec.LookPath("wrk")
	if err != nil || builtin {
		return generator{"the built-in generator", func(address string, keys int, length time.Duration) (outcome, error) {
			return runBuiltin(address, request{method: "GET"}, keys, length)
		}}
	}
	return generator{"wrk", func(address string, keys int, length time.Duration) (outcome, error) {
		return runWrk(wrk, work, address, keys, length)
	}}
}

// keysInLua gives each request the next of the keys, which it prepares in advance.
const keysInLua = `
local requests, i = {}, 0
init = function()
  for k = 1, %d do requests[k] = wrk.format("GET", "/", {["%s"] = "key-" .. k}) end
end
request = function()
  i = i %% #requests + 1
  return requests[i]
end
`

var (
	wrkRequests = regexp.MustCompile(`(\d+) requests in`)
	wrkRejected = regexp.MustCompile(`Non-2xx or 3xx responses: (\d+)`)
)

func runWrk(wrk, work, address string, keys int, length time.Duration) (outcome, error) {
	args := []string{"-t1", "-c" + strconv.Itoa(connections), "-d" + strconv.Itoa(int(length.Seconds())) + "s"}
	if keys > 1 {
		script := filepath.Join(work, "keys.lua")
		if err := os.WriteFile(script, fmt.Appendf(nil, keysInLua, keys, keyHeader), 0o600); err != nil {
			return outcome{}, err
		}
		args = append(args, "-s", script)
	}
	out, err := onCore(1, wrk, append(args, "http://"+address+"/")...).CombinedOutput()
	if err != nil {
		return outcome{}, fmt.Errorf("wrk: %w: %s", err, out)
	}
	var o outcome
	if m := wrkRequests.FindSubmatch(out); m != nil {
		o.requests, _ = strconv.Atoi(string(m[1]))
	}
	if m := wrkRejected.FindSubmatch(out); m != nil {
		o.rejected, _ = strconv.Atoi(string(m[1]))
	}
	return o, nil
}

// request is what the generator below sends, with the next key each time.
type request struct {
	method string
	body   string
}

// runBuiltin makes less load than wrk: it runs in this process, on any free core.
func runBuiltin(address string, r request, keys int, length time.Duration) (outcome, error) {
	var mu sync.Mutex
	var total outcome
	var failed error
	var wg sync.WaitGroup
	end := time.Now().Add(length)
	for c := range connections {
		wg.Go(func() {
			o, err := loadOne(address, r, keys, c*keys/connections, end)
			mu.Lock()
			total.requests += o.requests
			total.rejected += o.rejected
			total.accepted += o.accepted
			if err != nil {
				failed = err
			}
			mu.Unlock()
		})
	}
	wg.Wait()
	return total, failed
}

// loadOne makes requests on one connection until the time is over.
func loadOne(address string, r request, keys, key int, end time.Time) (outcome, error) {
	var o outcome
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return o, err
	}
	defer conn.Close()
	conn.SetDeadline(end.Add(10 * time.Second))
	answers := bufio.NewReader(conn)
	text := []byte(r.method + " / HTTP/1.1\r\nHost: " + address + "\r\n")
	if r.body != "" {
		text = fmt.Appendf(text, "Content-Length: %d\r\n", len(r.body))
	}
	text = append(text, keyHeader+": key-"...)
	head := len(text)
	for time.Now().Before(end) {
		key = key%keys + 1
		text = append(strconv.AppendInt(text[:head], int64(key), 10), "\r\n\r\n"...)
		text = append(text, r.body...)
		if _, err := conn.Write(text); err != nil {
			return o, err
		}
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			return o, err
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			return o, err
		}
		answer.Body.Close()
		o.requests++
		switch {
		case answer.StatusCode >= 400:
			o.rejected++
		case answer.StatusCode == http.StatusAccepted:
			o.accepted++
		}
	}
	return o, nil
}
