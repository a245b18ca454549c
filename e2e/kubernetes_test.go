package e2e

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// kubernetes answers like the API server of Kubernetes, as far as Traefik's provider needs: it lists resources, which never change. So manifests go through Traefik's real decoder.
type kubernetes struct {
	t         testing.TB
	resources map[string][]any // by the plural in lower case, such as middlewares
	server    *httptest.Server
}

// startKubernetes starts an API server with the manifests, and with a service of a name whose only pod is the upstream of the tests.
func startKubernetes(t testing.TB, manifests []map[string]any, namespace, service string) *kubernetes {
	t.Helper()
	k := &kubernetes{t: t, resources: make(map[string][]any)}
	for _, m := range manifests {
		plural := strings.ToLower(m["kind"].(string)) + "s"
		k.resources[plural] = append(k.resources[plural], m)
	}
	_, port, err := net.SplitHostPort(strings.TrimPrefix(upstream.url, "http://"))
	must.Succeed(t, err)
	number, err := strconv.Atoi(port)
	must.Succeed(t, err)
	k.resources["services"] = []any{map[string]any{
		"metadata": map[string]any{"name": service, "namespace": namespace},
		"spec":     map[string]any{"type": "ClusterIP", "clusterIP": "10.0.0.1", "ports": []any{map[string]any{"port": 80, "protocol": "TCP"}}},
	}}
	k.resources["endpointslices"] = []any{map[string]any{
		"metadata":    map[string]any{"name": service + "-1", "namespace": namespace, "labels": map[string]any{"kubernetes.io/service-name": service}},
		"addressType": "IPv4",
		"endpoints":   []any{map[string]any{"addresses": []any{"127.0.0.1"}, "conditions": map[string]any{"ready": true}}},
		"ports":       []any{map[string]any{"name": "", "port": number, "protocol": "TCP"}},
	}}
	k.server = httptest.NewServer(k)
	t.Cleanup(func() {
		k.server.CloseClientConnections()
		k.server.Close()
	})
	return k
}

// ServeHTTP answers as https://kubernetes.io/docs/reference/using-api/api-concepts/ describes. A watch has no event until the client leaves.
func (k *kubernetes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	query := r.URL.Query()
	switch {
	case query.Get("sendInitialEvents") != "": // then the client lists, and watches
		w.WriteHeader(http.StatusUnprocessableEntity)
		k.answer(w, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": http.StatusUnprocessableEntity})
	case query.Get("watch") != "":
		must.Succeed(k.t, http.NewResponseController(w).Flush())
		<-r.Context().Done()
	default:
		items := k.resources[path.Base(r.URL.Path)]
		if items == nil {
			items = []any{}
		}
		k.answer(w, map[string]any{"metadata": map[string]any{"resourceVersion": "1"}, "items": items})
	}
}

func (k *kubernetes) answer(w http.ResponseWriter, v any) {
	if err := json.NewEncoder(w).Encode(v); err != nil {
		k.t.Error(err)
	}
}
