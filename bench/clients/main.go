// Command clients has clients of three kinds use one limit of a Caddy with Weir, over real sockets, and prints how much of it they get and how many of their requests
// are rejected: the table of docs/clients.md.
//
//	go run ./clients                             some minutes
//	go run ./clients -limit 100/10s -during 1m   with another limit
package main

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/proxyweir/weir/caddy"
	"github.com/proxyweir/weir/client"
	"github.com/proxyweir/weir/core/rate"
)

// clients is how many share a limit. None knows of the others: each has connections of its own.
const clients = 20

var algorithms = []string{"fixed_window", "sliding_window_counter", "token_bucket", "sliding_window_log"}

// kinds are those of clients. All have as much to ask as they may.
var kinds = []struct {
	name string
	do   func(c *http.Client, url string) error
}{
	{"with package client", once},
	{"waits for Retry-After", func(c *http.Client, url string) error {
		answer, err := c.Get(url)
		if err != nil {
			return err
		}
		wait, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
		time.Sleep(time.Duration(wait) * time.Second)
		return read(answer)
	}},
	{"tries again at once, every 100 ms", func(c *http.Client, url string) error {
		time.Sleep(time.Duration(50+rand.IntN(100)) * time.Millisecond)
		return once(c, url)
	}},
}

func once(c *http.Client, url string) error {
	answer, err := c.Get(url)
	if err != nil {
		return err
	}
	return read(answer)
}

func read(answer *http.Response) error {
	defer answer.Body.Close()
	_, err := io.Copy(io.Discard, answer.Body)
	return err
}

// played is what the clients of one kind have got of one limit.
type played struct {
	admitted, rejected atomic.Int64
}

func main() {
	limit := flag.String("limit", "600/1m", "the `limit` that 20 clients share")
	during := flag.Duration("during", 4*time.Minute, "how long they ask; the first period is not counted")
	flag.Parse()
	if err := table(os.Stdout, *limit, *during); err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
		os.Exit(1)
	}
}

// table plays all kinds of clients with all algorithms at once, and writes what came of it.
func table(out io.Writer, limit string, during time.Duration) error {
	var c rate.LimitConfig
	if err := rate.ParseLimit(limit, &c); err != nil {
		return err
	}
	if c.Period == 0 || during < 2*c.Period {
		return fmt.Errorf("-limit %s, -during %v: want a period that is no day, week or month, and at least two of them", limit, during)
	}
	address, err := start(limit)
	if err != nil {
		return err
	}
	defer caddy.Stop() //nolint:errcheck // the program ends
	counted := during.Truncate(c.Period) - c.Period
	results, err := play(address, c.Period, counted)
	if err != nil {
		return err
	}
	most := float64(c.Requests) * float64(counted/c.Period)
	fmt.Fprintf(out, "| clients | %s |\n| --- |%s\n", strings.Join(algorithms, " | "), strings.Repeat(" --- |", len(algorithms)))
	for k, kind := range kinds {
		fmt.Fprintf(out, "| %s |", kind.name)
		for a := range algorithms {
			admitted, rejected := float64(results[k][a].admitted.Load()), float64(results[k][a].rejected.Load())
			fmt.Fprintf(out, " %.1f %%, %.1f %% rejected |", 100*admitted/most, 100*rejected/max(1, admitted+rejected))
		}
		fmt.Fprintln(out)
	}
	return nil
}

// start starts a Caddy with a limit for each kind of clients and algorithm: that of /k/a.
func start(limit string) (address string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	address = listener.Addr().String()
	listener.Close()
	zones := ""
	for k := range kinds {
		for a, algorithm := range algorithms {
			zones += fmt.Sprintf("zone z%d-%d {\nmatch {\npath /%d/%d\n}\nkey all\nlimit %s\nalgorithm %s\n}\n", k, a, k, a, limit, algorithm)
		}
	}
	site := "{\nadmin off\npersist_config off\nlog {\nlevel ERROR\n}\n}\nhttp://" + address + " {\nrate_limit {\n" + zones + "}\nrespond ok\n}\n"
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(site), nil)
	if err != nil {
		return "", err
	}
	return address, caddy.Load(config, true)
}

// play has all clients ask, and counts what is answered after the warm-up.
func play(address string, warmUp, counted time.Duration) (results [][]played, err error) {
	begin := time.Now().Truncate(warmUp).Add(2 * warmUp) // a window of the clock's
	end := begin.Add(counted)
	results = make([][]played, len(kinds))
	failed := make(chan error, len(kinds)*len(algorithms)*clients)
	var all sync.WaitGroup
	for k, kind := range kinds {
		results[k] = make([]played, len(algorithms))
		for a := range algorithms {
			for range clients {
				all.Go(func() {
					transport := &counting{to: &results[k][a], begin: begin, end: end}
					defer transport.CloseIdleConnections()
					c := &http.Client{Transport: transport}
					if k == 0 {
						c.Transport = &client.Transport{Base: transport}
					}
					for time.Now().Before(end) {
						if err := kind.do(c, fmt.Sprintf("http://%s/%d/%d", address, k, a)); err != nil {
							failed <- err
							return
						}
					}
				})
			}
		}
	}
	all.Wait()
	select {
	case err = <-failed:
	default:
	}
	return results, err
}

// counting counts what is answered between two times.
type counting struct {
	http.Transport
	to         *played
	begin, end time.Time
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := c.Transport.RoundTrip(r)
	if now := time.Now(); err == nil && !now.Before(c.begin) && now.Before(c.end) {
		if answer.StatusCode == http.StatusOK {
			c.to.admitted.Add(1)
		} else {
			c.to.rejected.Add(1)
		}
	}
	return answer, err
}
