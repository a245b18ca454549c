package replay

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/ruleset/yaml"
	"github.com/proxyweir/weir/tools/must"
)

// traffic makes lines of access logs: of so many clients, of which some send far more than others, in so many requests a second. The same
// seed makes the same lines.
type traffic struct {
	random  *rand.Rand
	clients int
	at      float64 // seconds since the epoch
	rate    float64
}

func newTraffic(clients int) *traffic {
	return &traffic{random: rand.New(rand.NewPCG(1, 2)), clients: clients, at: 1_790_000_000, rate: 300}
}

// one is a request.
type one struct {
	end, duration float64
	client        int
	path          string
	status        int
	browser       int
}

func (t *traffic) next() one {
	t.at += t.random.ExpFloat64() / t.rate
	client := int(t.random.Float64() * t.random.Float64() * t.random.Float64() * float64(t.clients))
	path := [...]string{"/", "/v1/items/4711?page=2", "/v1/search?q=weir", "/login", "/assets/app.3f9c77.js"}[t.random.IntN(5)]
	duration := 0.002 + t.random.ExpFloat64()*0.05
	return one{t.at, duration, client, path, [...]int{200, 200, 200, 304, 404, 401}[t.random.IntN(6)], t.random.IntN(8)}
}

// address returns the address of a client.
func address(client int) string {
	return fmt.Sprintf("%d.%d.%d.%d", 11+client>>24, client>>16&255, client>>8&255, client&255)
}

const browser = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/1%d4.0.0.0 Safari/537.36"

// writers write a request as each kind of log has it.
var writers = map[string]func(io.Writer, one){
	"caddy": func(w io.Writer, o one) {
		fmt.Fprintf(w, `{"level":"info","ts":%.7f,"logger":"http.log.access.log0","msg":"handled request","request":{"remote_ip":"10.0.0.7","remote_port":"%d","client_ip":"%s","proto":"HTTP/2.0","method":"GET","host":"www.example.com","uri":"%s","headers":{"X-Api-Key":["key-%d"],"User-Agent":["`+browser+`"],"Accept":["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"],"Accept-Language":["en-GB,en;q=0.5"],"Accept-Encoding":["gzip, deflate, br, zstd"],"Referer":["https://www.example.com/"],"Cookie":["REDACTED"],"X-Forwarded-For":["%s"]},"tls":{"resumed":false,"version":772,"cipher_suite":4865,"proto":"h2","server_name":"www.example.com"}},"bytes_read":0,"user_id":"","duration":%.9f,"size":5312,"status":%d,"resp_headers":{"Server":["Caddy"],"Alt-Svc":["h3=\":443\"; ma=2592000"],"Content-Type":["text/html; charset=utf-8"],"Content-Encoding":["gzip"]}}`+"\n",
			o.end, 1024+o.client%60000, address(o.client), o.path, o.client, o.browser, address(o.client), o.duration, o.status)
	},
	"traefik-json": func(w io.Writer, o one) {
		start := time.UnixMicro(int64((o.end - o.duration) * 1e6)).UTC()
		fmt.Fprintf(w, `{"ClientAddr":"10.0.0.7:4711","ClientHost":"%s","ClientPort":"4711","ClientUsername":"-","DownstreamContentSize":5312,"DownstreamStatus":%d,"Duration":%d,"OriginContentSize":5312,"OriginDuration":900000,"OriginStatus":%d,"Overhead":12000,"RequestAddr":"www.example.com","RequestContentSize":0,"RequestCount":1,"RequestHost":"www.example.com","RequestMethod":"GET","RequestPath":"%s","RequestPort":"-","RequestProtocol":"HTTP/2.0","RequestScheme":"https","RetryAttempts":0,"RouterName":"web@file","ServiceAddr":"10.0.0.9:80","ServiceName":"web@file","ServiceURL":"http://10.0.0.9:80","StartLocal":"%s","StartUTC":"%s","TLSVersion":"1.3","entryPointName":"websecure","level":"info","msg":"","request_User-Agent":"`+browser+`","request_X-Api-Key":"key-%d","time":"%s"}`+"\n",
			address(o.client), o.status, int64(o.duration*1e9), o.status, o.path, start.Format(time.RFC3339Nano), start.Format(time.RFC3339Nano), o.browser, o.client, time.Unix(int64(o.end), 0).UTC().Format(time.RFC3339))
	},
	"traefik-common": func(w io.Writer, o one) {
		fmt.Fprintf(w, `%s - - [%s] "GET %s HTTP/2.0" %d 5312 "https://www.example.com/" "`+browser+`" 4711 "web@file" "http://10.0.0.9:80" %dms`+"\n",
			address(o.client), time.Unix(int64(o.end-o.duration), 0).UTC().Format(commonLogTime), o.path, o.status, o.browser, int64(o.duration*1e3))
	},
	"combined": func(w io.Writer, o one) {
		fmt.Fprintf(w, `%s - - [%s] "GET %s HTTP/1.1" %d 5312 "https://www.example.com/" "`+browser+`"`+"\n",
			address(o.client), time.Unix(int64(o.end), 0).UTC().Format(commonLogTime), o.path, o.status, o.browser)
	},
}

// writeTraffic writes a log, gzipped where its name ends with .gz, and returns its name.
func writeTraffic(t testing.TB, name, format string, lines, clients int) string {
	t.Helper()
	name = filepath.Join(t.TempDir(), name)
	file, err := os.Create(name)
	must.Succeed(t, err)
	buffered := bufio.NewWriterSize(file, 1<<20)
	var w io.Writer = buffered
	var packed *gzip.Writer
	if strings.HasSuffix(name, ".gz") {
		packed = gzip.NewWriter(buffered)
		w = packed
	}
	source := newTraffic(clients)
	for range lines {
		writers[format](w, source.next())
	}
	if packed != nil {
		must.Succeed(t, packed.Close())
	}
	must.Succeed(t, buffered.Flush())
	must.Succeed(t, file.Close())
	return name
}

// filesOf are rule files, as Config takes them.
func filesOf(t testing.TB, text string) []*ruleset.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "rules.yaml")
	must.Succeed(t, os.WriteFile(name, []byte(text), 0o600))
	contents, problems := ruleset.Read([]string{name})
	if problems != nil {
		t.Fatal(problems)
	}
	files, problems := ruleset.Parse(contents, yaml.Parse)
	if problems != nil {
		t.Fatal(problems)
	}
	return files
}

// threeRules are what the benchmarks replay.
const threeRules = `
rules:
  - {name: per-client, limit: 60/1m}
  - {name: search, match: {path_prefixes: [/v1]}, limit: 10/10s, algorithm: token_bucket, burst: 20}
  - {name: login, match: {paths: [/login]}, limit: 5/1m, algorithm: sliding_window_log, count: [401]}
`

// peak runs f, and returns how much memory the process had from the system at most meanwhile, in MB.
func peak(f func()) float64 {
	debug.FreeOSMemory()
	most := make(chan uint64)
	over := make(chan struct{})
	go func() {
		samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
		highest := uint64(0)
		for {
			metrics.Read(samples)
			highest = max(highest, samples[0].Value.Uint64()-samples[1].Value.Uint64())
			select {
			case <-over:
				most <- highest
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	f()
	close(over)
	return float64(<-most) / (1 << 20)
}

// BenchmarkMillion replays logs of a million lines (or of four), with three rules.
func BenchmarkMillion(b *testing.B) {
	for _, c := range []struct {
		name, file, format string
		lines, clients     int
		suggest            bool
	}{
		{"caddy", "a.log", "caddy", 1_000_000, 10_000, false},
		{"caddy gzipped", "a.log.gz", "caddy", 1_000_000, 10_000, false},
		{"caddy, 4 million lines", "a.log", "caddy", 4_000_000, 10_000, false},
		{"caddy, a million clients", "a.log", "caddy", 1_000_000, 40_000_000, false},
		{"caddy, with suggestions", "a.log", "caddy", 1_000_000, 10_000, true},
		{"traefik json", "a.log", "traefik-json", 1_000_000, 10_000, false},
		{"traefik common", "a.log", "traefik-common", 1_000_000, 10_000, false},
		{"combined", "a.log", "combined", 1_000_000, 10_000, false},
		{"combined gzipped", "a.log.gz", "combined", 1_000_000, 10_000, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			name := writeTraffic(b, c.file, c.format, c.lines, c.clients)
			info, err := os.Stat(name)
			must.Succeed(b, err)
			files := filesOf(b, threeRules)
			var r *Report
			highest := 0.0
			before := cpuTime()
			b.ResetTimer()
			for range b.N {
				highest = max(highest, peak(func() {
					r, err = Run(context.Background(), Config{Rules: files, Logs: []string{name}, Suggest: c.suggest, Share: 0.001})
				}))
				must.Succeed(b, err)
			}
			b.StopTimer()
			b.ReportMetric((cpuTime()-before).Seconds()/float64(b.N), "cpu-s")
			if r.Requests != int64(c.lines) {
				b.Fatalf("%d requests, want %d", r.Requests, c.lines)
			}
			b.ReportMetric(float64(c.lines)*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
			b.ReportMetric(highest, "MB-peak")
			b.ReportMetric(float64(info.Size())/float64(c.lines), "bytes/line")
			b.ReportMetric(float64(r.Rules[0].Clients), "clients")
			if c.suggest {
				b.ReportMetric(float64(r.Passes), "passes")
			}
			runtime.KeepAlive(r)
		})
	}
}
