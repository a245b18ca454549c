// Command storagebench plays the same requests to three Caddys with Weir and to three with caddy-ratelimit, each three on a folder that they share by
// distributed { … }, with the same configuration, one fleet after the other. It prints what each fleet admitted beyond the limit, the CPU time of its
// processes, and what it did with files. It runs on Linux only. Run it in the bench module's folder.
package main

import (
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/proxyweir/weir/bench/cputime"
)

const instances = 3

// play is what is asked of a fleet.
type play struct {
	name   string
	limit  int // requests of a key in a window
	window time.Duration
	keys   int
	rate   func(at time.Duration) float64 // requests a second, over all keys and instances
	length time.Duration
}

func main() {
	interval := flag.Duration("interval", 5*time.Second, "read_interval and write_interval")
	only := flag.String("only", "", "play this one alone")
	flag.Parse()
	log.SetFlags(0)
	steady := func(rate float64) func(time.Duration) float64 {
		return func(time.Duration) float64 { return rate }
	}
	plays := []play{
		{"one key, twice the limit", 3000, 30 * time.Second, 1, steady(200), 2 * time.Minute},
		{"one key, bursts of 5 s in each 40 s", 3000, 30 * time.Second, 1, func(at time.Duration) float64 {
			if at%(40*time.Second) < 5*time.Second {
				return 1000
			}
			return 10
		}, 2 * time.Minute},
		{"10,000 keys, 400 requests a second", 6, 30 * time.Second, 10_000, steady(400), time.Minute},
	}
	work, err := os.MkdirTemp("", "storagebench")
	if err != nil {
		log.Fatal(err)
	}
	err = run(work, plays, *only, *interval)
	os.RemoveAll(work)
	if err != nil {
		log.Fatal(err)
	}
}

func run(work string, plays []play, only string, interval time.Duration) error {
	bin := filepath.Join(work, "bin") + string(filepath.Separator)
	fmt.Fprintln(os.Stderr, "building two Caddys")
	build := exec.Command("go", "build", "-o", bin, "./cmd/weir", "./cmd/ratelimit")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("building the Caddys (run this in the bench module's folder): %w", err)
	}
	fmt.Printf("Three instances, read_interval and write_interval %s.\n\n", interval)
	fmt.Println("| load | | admitted | of these beyond the limit | most in a window, in % of the limit | CPU, s | files written | files read | MB read |")
	fmt.Println("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	for i, p := range plays {
		if only != "" && only != p.name {
			continue
		}
		for _, program := range []string{"ratelimit", "weir"} {
			f, err := p.start(bin+program, filepath.Join(work, fmt.Sprint(program, i)), interval)
			if err == nil {
				err = f.load()
			}
			if f != nil {
				f.stop()
			}
			if err != nil {
				return fmt.Errorf("%s, %s: %w", p.name, program, err)
			}
			name := map[string]string{"weir": "Weir", "ratelimit": "caddy-ratelimit"}[program]
			most, beyond := f.judge()
			fmt.Printf("| %s | %s | %d | %d | %.1f | %.1f | %d | %d | %.1f |\n", p.name, name, f.admitted, beyond, 100*float64(most)/float64(p.limit), f.used.Seconds(), f.written, f.read, float64(f.bytes)/1e6)
		}
	}
	return nil
}

// fleet is some Caddys that share a folder.
type fleet struct {
	play
	servers []*exec.Cmd
	addrs   []string
	folder  string

	mu       sync.Mutex
	times    map[string][]time.Duration // of what was admitted, by keys
	admitted int

	used                 time.Duration
	written, read, bytes int64
}

// start starts the instances.
func (p play) start(binary, folder string, interval time.Duration) (*fleet, error) {
	f := &fleet{play: p, folder: folder, times: make(map[string][]time.Duration)}
	for _, name := range folders {
		if err := os.MkdirAll(filepath.Join(folder, name), 0o700); err != nil {
			return f, err
		}
	}
	for i := range instances {
		addr := fmt.Sprintf("127.0.0.1:%d", 17401+i)
		config := fmt.Sprintf(`{
	admin off
	auto_https off
	persist_config off
	order rate_limit before respond
	default_bind 127.0.0.1
	log {
		level ERROR
	}
	storage file_system %s
}
http://%s {
	rate_limit {
		zone all {
			key {http.request.header.X-Key}
			events %d
			window %s
		}
		distributed {
			read_interval %s
			write_interval %s
		}
	}
	respond ok
}
`, folder, addr, p.limit, p.window, interval, interval)
		file := filepath.Join(folder, fmt.Sprintf("%d.caddyfile", i))
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			return f, err
		}
		server := exec.Command(binary, "run", "--config", file, "--adapter", "caddyfile")
		home := filepath.Join(folder, strconv.Itoa(i)) // caddy-ratelimit tells instances apart by an identity that Caddy keeps there
		server.Env = append(os.Environ(), "GOMAXPROCS=1", "XDG_DATA_HOME="+home, "XDG_CONFIG_HOME="+home)
		server.Stderr = os.Stderr
		if err := server.Start(); err != nil {
			return f, err
		}
		f.servers = append(f.servers, server)
		f.addrs = append(f.addrs, addr)
		if err := await(addr); err != nil {
			return f, err
		}
	}
	return f, nil
}

func await(addr string) error {
	for range 200 {
		if c, err := net.Dial("tcp", addr); err == nil {
			return c.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("nothing listens on %s", addr)
}

// stop ends the instances.
func (f *fleet) stop() {
	for _, s := range f.servers {
		_ = s.Process.Signal(syscall.SIGTERM)
		_ = s.Wait()
	}
}

// load makes the requests, at random moments, to random instances, and notes what comes of them.
func (f *fleet) load() error {
	before, err := f.cpu()
	if err != nil {
		return err
	}
	stop, err := f.count()
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	r := rand.New(rand.NewPCG(1, 2)) // the same for all
	var under sync.WaitGroup
	var failed atomic.Int64
	begin := time.Now()
	for at := time.Duration(0); at < f.length; at += time.Duration(r.ExpFloat64() / f.rate(at) * 1e9) {
		time.Sleep(time.Until(begin.Add(at)))
		addr, key := f.addrs[r.IntN(instances)], strconv.Itoa(r.IntN(f.keys))
		under.Go(func() {
			if !f.request(client, addr, key, begin) {
				failed.Add(1)
			}
		})
	}
	under.Wait()
	stop()
	after, err := f.cpu()
	if err != nil {
		return err
	}
	f.used = after - before
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("%d requests have failed", n)
	}
	return nil
}

// request makes one request. It returns false if the answer is neither 200 nor 429.
func (f *fleet) request(client *http.Client, addr, key string, begin time.Time) bool {
	request, err := http.NewRequest("GET", "http://"+addr+"/", nil)
	if err != nil {
		return false
	}
	request.Header.Set("X-Key", key)
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	response.Body.Close()
	if response.StatusCode == http.StatusOK {
		f.mu.Lock()
		f.times[key] = append(f.times[key], time.Since(begin))
		f.admitted++
		f.mu.Unlock()
	}
	return response.StatusCode == http.StatusOK || response.StatusCode == http.StatusTooManyRequests
}

// judge returns the most requests that one key was admitted in a window, and how many were admitted when the limit of their key was used up.
func (f *fleet) judge() (most, beyond int) {
	for _, times := range f.times {
		slices.Sort(times)
		from := 0
		for i, at := range times {
			for times[from] <= at-f.window {
				from++
			}
			n := i - from + 1
			most = max(most, n)
			if n > f.limit {
				beyond++
			}
		}
	}
	return most, beyond
}

// cpu returns the CPU time of all instances.
func (f *fleet) cpu() (time.Duration, error) {
	sum := time.Duration(0)
	for _, s := range f.servers {
		used, err := cputime.Of(s.Process.Pid)
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

// folders are in which the instances of both programs have their files.
var folders = []string{"rate_limit", "rate_limit/instances", "rate_limit/weir"}

// count counts what is done with the files of the instances, until stop is called.
func (f *fleet) count() (stop func(), err error) {
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	watched := make(map[int]string)
	for _, name := range folders {
		folder := filepath.Join(f.folder, name)
		w, err := unix.InotifyAddWatch(watch, folder, unix.IN_CLOSE_NOWRITE|unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO)
		if err != nil {
			return nil, err
		}
		watched[w] = folder
	}
	file := os.NewFile(uintptr(watch), "inotify")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		space := make([]byte, 1<<16)
		for {
			n, err := file.Read(space)
			if err != nil {
				return
			}
			for at := 0; at+unix.SizeofInotifyEvent <= n; {
				long := int(uint32(space[at+12]) | uint32(space[at+13])<<8)
				mask := uint32(space[at+4]) | uint32(space[at+5])<<8 | uint32(space[at+6])<<16 | uint32(space[at+7])<<24
				name := strings.TrimRight(string(space[at+unix.SizeofInotifyEvent:at+unix.SizeofInotifyEvent+long]), "\x00")
				folder := watched[int(space[at])]
				at += unix.SizeofInotifyEvent + long
				switch {
				case mask&unix.IN_ISDIR != 0 || name == "":
				case mask&unix.IN_CLOSE_WRITE != 0:
					f.written++
				case mask&unix.IN_CLOSE_NOWRITE != 0:
					f.read++
					if info, err := os.Stat(filepath.Join(folder, name)); err == nil {
						f.bytes += info.Size()
					}
				}
			}
		}
	}()
	stopping := filepath.Join(f.folder, "rate_limit", "end")
	return func() {
		_ = os.WriteFile(stopping, nil, 0o600) // wakes the goroutine, which may wait in Read
		file.Close()
		select {
		case <-ended:
		case <-time.After(time.Second):
		}
	}, nil
}
