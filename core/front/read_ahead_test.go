package front

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// aheadHandler makes each request wait, as a proxy does, until go gets a value, and then reads its body.
type aheadHandler struct {
	waits chan *http.Request
	goOn  chan bool
	got   chan string // what became of it
}

func newAheadHandler() *aheadHandler {
	return &aheadHandler{waits: make(chan *http.Request), goOn: make(chan bool), got: make(chan string, 1)}
}

func (h *aheadHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r, ahead := ReadAhead(r)
	h.waits <- r
	<-h.goOn
	ahead.Stop()
	body, err := io.ReadAll(r.Body)
	_ = r.Body.Close()
	end := "whole"
	if err != nil {
		end = "broken"
	}
	h.got <- fmt.Sprintf("%d %s %d %v %s", len(body), end, r.ContentLength, r.TransferEncoding, r.Trailer.Get("X-Sum"))
}

// A body is read as if nothing had been read ahead, however much of it arrives while its request waits.
func TestABodyThatWasReadAheadIsWhole(t *testing.T) {
	h := newAheadHandler()
	s := httptest.NewServer(h)
	defer s.Close()
	for _, c := range []struct {
		name          string
		head          string // of the request, behind its first line
		before, after string // parts of the body: what arrives while it waits, and then
		want          string
	}{
		{"nothing", "", "", "", "0 whole 0 [] "},
		{"little", "Content-Length: 2", "ab", "", "2 whole 2 [] "},
		{"little, in two parts", "Content-Length: 4", "ab", "cd", "4 whole 4 [] "},
		{"little, late", "Content-Length: 4", "", "abcd", "4 whole 4 [] "},
		{"as much as is read ahead", "Content-Length: 16384", strings.Repeat("a", 16384), "", "16384 whole 16384 [] "},
		{"one more", "Content-Length: 16385", strings.Repeat("a", 16384), "b", "16385 whole 16385 [] "},
		{"much", "Content-Length: 300000", strings.Repeat("a", 40000), strings.Repeat("b", 260000), "300000 whole 300000 [] "},
		{"chunks", "Transfer-Encoding: chunked", "2\r\nab\r\n", "3\r\ncde\r\n0\r\n\r\n", "5 whole -1 [chunked] "},
		{"chunks, all of them", "Transfer-Encoding: chunked", "2\r\nab\r\n0\r\n\r\n", "", "2 whole -1 [chunked] "},
		{"a trailer", "Transfer-Encoding: chunked\r\nTrailer: X-Sum", "2\r\nab\r\n0\r\nX-Sum: 7\r\n\r\n", "", "2 whole -1 [chunked] 7"},
		{"a late trailer", "Transfer-Encoding: chunked\r\nTrailer: X-Sum", "2\r\nab\r\n", "0\r\nX-Sum: 7\r\n\r\n", "2 whole -1 [chunked] 7"},
		{"broken chunks", "Transfer-Encoding: chunked", "2\r\nab\r\nzz\r\n", "", "2 broken -1 [chunked] "},
	} {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		must.Succeed(t, err)
		head := "POST / HTTP/1.1\r\nHost: x\r\n"
		if c.head != "" {
			head += c.head + "\r\n"
		}
		fmt.Fprint(conn, head+"\r\n"+c.before)
		r := <-h.waits
		if len(r.Trailer) == 1 && r.Trailer.Get("X-Sum") != "" {
			t.Errorf("%s: the trailer is there before the body was read", c.name)
		}
		h.goOn <- true
		fmt.Fprint(conn, c.after)
		if got := <-h.got; got != c.want {
			t.Errorf("%s: %q; want %q", c.name, got, c.want)
		}
		if answer, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %v, %v", c.name, answer, err)
		}
		_ = conn.Close()
	}
}

// A defect that was: over HTTP/1 a client that had sent a body could leave, and its request waited all the same.
func TestAClientThatLeavesWhileItsRequestWaitsIsNoticed(t *testing.T) {
	h := newAheadHandler()
	s := httptest.NewServer(h)
	defer s.Close()
	for _, head := range []string{
		"Content-Length: 2\r\n\r\nab",
		"Content-Length: 2\r\n\r\na",
		"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n",
		"Content-Length: 1000000\r\n\r\n",
		"Content-Length: 1000000\r\nExpect: 100-continue\r\n\r\n",
		"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
		"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
		"Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n0\r\nX-Sum: 7\r\n\r\n",
	} {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		must.Succeed(t, err)
		fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: x\r\n"+head)
		r := <-h.waits
		_ = conn.Close()
		select { // one at a time, so that an interpreter does not mix them up
		case <-r.Context().Done():
		case <-time.After(time.Minute):
			t.Errorf("%q: nobody has noticed that the client left", head)
		}
		h.goOn <- true
		<-h.got
	}
}

// slowBody returns the bytes that its test sends it.
type slowBody struct {
	parts  chan string // closed at the end
	closed chan bool
	reads  chan int // the sizes asked for
}

func (b *slowBody) Read(p []byte) (int, error) {
	b.reads <- len(p)
	part, more := <-b.parts
	if !more {
		return 0, io.EOF
	}
	return copy(p, part), nil
}

func (b *slowBody) Close() error {
	close(b.closed)
	return nil
}

func newSlowBody() *slowBody {
	return &slowBody{parts: make(chan string), closed: make(chan bool), reads: make(chan int, 1000)}
}

func waitingWith(body io.ReadCloser) *http.Request {
	r := httptest.NewRequest("POST", "/", nil)
	r.Body = body
	r.ContentLength = -1
	return r
}

// Who reads on has what was read ahead at once, and waits for the read that lasts, which is for what it would wait for.
func TestWhatWasReadAheadComesBeforeWhatIsYetToCome(t *testing.T) {
	body := newSlowBody()
	r, ahead := ReadAhead(waitingWith(body))
	body.parts <- "ab"
	<-body.reads
	<-body.reads // the second, which lasts
	ahead.Stop()
	p := make([]byte, 10)
	if n, err := r.Body.Read(p); n != 2 || err != nil || string(p[:2]) != "ab" {
		t.Fatalf("%q, %v", p[:n], err)
	}
	body.parts <- "cd"
	if n, err := r.Body.Read(p); n != 2 || err != nil || string(p[:2]) != "cd" {
		t.Fatalf("%q, %v", p[:n], err)
	}
	must.Equal(t, len(body.reads), 0, "further reads, when the wait was over")
	close(body.parts)
	if n, err := r.Body.Read(p); n != 0 || err != io.EOF {
		t.Fatalf("%q, %v", p[:n], err)
	}
	if size := <-body.reads; size != len(p) {
		t.Errorf("a read of %d; want the reader's own", size)
	}
	must.Succeed(t, r.Body.Close())
	<-body.closed
}

func TestNoMoreThanALittleIsReadAhead(t *testing.T) {
	body := newSlowBody()
	r, ahead := ReadAhead(waitingWith(body))
	part := strings.Repeat("a", 2048)
	for i := 0; i < 8; i++ {
		body.parts <- part
	}
	ahead.Stop()
	p := make([]byte, 1<<20)
	total := 0
	for total < 16<<10 {
		n, err := r.Body.Read(p)
		must.Succeed(t, err)
		total += n
	}
	if n := len(body.reads); n != 8 {
		t.Errorf("%d reads; want those of 16 KiB", n)
	}
	close(body.parts)
	if rest, err := io.ReadAll(r.Body); err != nil || len(rest) != 0 {
		t.Errorf("%d bytes, %v", len(rest), err)
	}
}

type failingBody struct{ panics bool }

var errFailing = errors.New("failing")

func (b *failingBody) Read(p []byte) (int, error) {
	if b.panics {
		panic("defect")
	}
	return copy(p, "ab"), errFailing
}

func (b *failingBody) Close() error { return nil }

func TestTheErrorOfABodyComesBehindWhatItHas(t *testing.T) {
	r, _ := ReadAhead(waitingWith(&failingBody{}))
	if all, err := io.ReadAll(r.Body); string(all) != "ab" || err != errFailing {
		t.Errorf("%q, %v", all, err)
	}
	r, _ = ReadAhead(waitingWith(&failingBody{panics: true}))
	if all, err := io.ReadAll(r.Body); len(all) != 0 || err != io.ErrUnexpectedEOF {
		t.Errorf("%q, %v", all, err)
	}
}

func TestBodiesThatNeedNoReadingAreLeftAlone(t *testing.T) {
	body := io.NopCloser(bytes.NewReader([]byte("ab")))
	for _, c := range []struct {
		major  int
		length int64
		body   io.ReadCloser
	}{{2, 2, body}, {3, -1, body}, {1, 0, body}, {1, 0, http.NoBody}} {
		r := httptest.NewRequest("POST", "/", nil)
		r.ProtoMajor = c.major
		r.ContentLength = c.length
		r.Body = c.body
		if same, ahead := ReadAhead(r); same != r || r.Body != c.body || ahead != nil {
			t.Errorf("%+v: another body", c)
		}
	}
}
