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
		return generator{"the built-in generator", runBuiltin}
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

// runBuiltin makes less load than wrk: it runs in this process, on any free core.
func runBuiltin(address string, keys int, length time.Duration) (outcome, error) {
	var mu sync.Mutex
	var total outcome
	var failed error
	var wg sync.WaitGroup
	end := time.Now().Add(length)
	for c := range connections {
		wg.Go(func() {
			o, err := loadOne(address, keys, c*keys/connections, end)
			mu.Lock()
			total.requests += o.requests
			total.rejected += o.rejected
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
func loadOne(address string, keys, key int, end time.Time) (outcome, error) {
	var o outcome
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return o, err
	}
	defer conn.Close()
	conn.SetDeadline(end.Add(10 * time.Second))
	answers := bufio.NewReader(conn)
	request := []byte("GET / HTTP/1.1\r\nHost: " + address + "\r\n" + keyHeader + ": key-")
	head := len(request)
	for time.Now().Before(end) {
		key = key%keys + 1
		request = append(strconv.AppendInt(request[:head], int64(key), 10), "\r\n\r\n"...)
		if _, err := conn.Write(request); err != nil {
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
		if answer.StatusCode >= 400 {
			o.rejected++
		}
	}
	return o, nil
}
