package e2e
import ("testing";"fmt";"time";"context";"net/http")
func TestProbe(t *testing.T) {
	b := time.Now()
	s := limited(t, "{limit: 1/1h, algorithm: token_bucket, onLimit: delay, maxDelay: 1h, burst: 1}")
	t.Log(time.Since(b))
	s.admit(1, "/")
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.host()+"/", nil)
		_, err := exchange(s.client, r)
		fmt.Println(err)
	}()
	time.Sleep(300*time.Millisecond)
	b = time.Now()
	text := string(s.get(t, "/debug/pprof/goroutine?debug=1"))
	t.Log(time.Since(b), len(text))
	fmt.Println(text)
	leave()
}
