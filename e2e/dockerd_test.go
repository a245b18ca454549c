package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// dockerd answers like the Docker engine, as far as Traefik's provider needs, so that labels go through Traefik's real decoder. Its
// containers are all at 127.0.0.1.
type dockerd struct {
	t        testing.TB
	endpoint string // unix:///…

	mu         sync.Mutex
	containers []container
	listeners  []chan string // of events, each a line of JSON
}

type container struct {
	name   string
	labels map[string]string
}

func startDockerd(t testing.TB) *dockerd {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir") // a socket's path must be short
	must.Succeed(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "docker.sock")
	l, err := net.Listen("unix", socket)
	must.Succeed(t, err)
	d := &dockerd{t: t, endpoint: "unix://" + socket}
	server := &http.Server{Handler: d}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return d
}

// heard waits until a client listens to events. Traefik lists the containers first, and does not notice those that are added before
// it listens.
func (d *dockerd) heard() {
	d.t.Helper()
	eventually(d.t, "Traefik listens to Docker", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.listeners) > 0
	})
}

// run adds a container and sends its event.
func (d *dockerd) run(name string, labels map[string]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.containers = append(d.containers, container{name, labels})
	for _, l := range d.listeners {
		l <- fmt.Sprintf(`{"Type": "container", "Action": "start", "Actor": {"ID": "id-%s"}}`, name)
	}
}

// ServeHTTP answers as https://docs.docker.com/reference/api/engine/ describes, under the prefix of any version.
func (d *dockerd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if rest, ok := strings.CutPrefix(path, "/v1."); ok {
		_, rest, _ = strings.Cut(rest, "/")
		path = "/" + rest
	}
	w.Header().Set("Api-Version", "1.47")
	w.Header().Set("Ostype", "linux")
	w.Header().Set("Content-Type", "application/json")
	id, isContainer := strings.CutPrefix(path, "/containers/id-")
	switch {
	case path == "/_ping":
		_, _ = w.Write([]byte("OK"))
	case path == "/version":
		d.answer(w, map[string]string{"Version": "27.0.0", "ApiVersion": "1.47", "MinAPIVersion": "1.24", "Os": "linux"})
	case path == "/containers/json":
		d.answer(w, d.list())
	case path == "/events":
		d.tell(w, r)
	case isContainer:
		d.inspect(w, strings.TrimSuffix(id, "/json"))
	default:
		d.t.Errorf("Docker is asked %s %s", r.Method, r.URL)
		http.NotFound(w, r)
	}
}

func (d *dockerd) answer(w http.ResponseWriter, v any) {
	if err := json.NewEncoder(w).Encode(v); err != nil {
		d.t.Error(err)
	}
}

func (d *dockerd) list() []map[string]any {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := []map[string]any{}
	for _, c := range d.containers {
		list = append(list, map[string]any{"Id": "id-" + c.name, "Names": []string{"/" + c.name}, "Labels": c.labels, "State": "running"})
	}
	return list
}

func (d *dockerd) inspect(w http.ResponseWriter, name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.containers {
		if c.name != name {
			continue
		}
		d.answer(w, map[string]any{
			"Id":         "id-" + c.name,
			"Name":       "/" + c.name,
			"State":      map[string]any{"Status": "running", "Running": true},
			"Config":     map[string]any{"Labels": c.labels},
			"HostConfig": map[string]any{"NetworkMode": "default"},
			"NetworkSettings": map[string]any{
				"Networks": map[string]any{"bridge": map[string]any{"NetworkID": "n1", "IPAddress": "127.0.0.1"}},
			},
		})
		return
	}
	w.WriteHeader(http.StatusNotFound)
	d.answer(w, map[string]string{"message": "No such container: " + name})
}

// tell streams events until the client disconnects.
func (d *dockerd) tell(w http.ResponseWriter, r *http.Request) {
	events := make(chan string, 100)
	d.mu.Lock()
	d.listeners = append(d.listeners, events)
	d.mu.Unlock()
	flush := http.NewResponseController(w).Flush
	_ = flush()
	for {
		select {
		case e := <-events:
			_, _ = fmt.Fprintln(w, e)
			_ = flush()
		case <-r.Context().Done():
			return
		}
	}
}
