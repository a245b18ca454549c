package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// patience is how long a test waits for data on a connection.
const patience = time.Minute

// eachWay runs a test with a limit, and with one that is charged by responses, whose writer the plugin wraps.
func eachWay(t *testing.T, limit string, test func(t *testing.T, s *site)) {
	for _, more := range []string{"", ", costResponse: [header, X-Cost]", ", costResponse: [json, usage.n]", ", count: [101, 2xx, 499], respectUpstream: 1h"} {
		limit := limit
		if strings.Contains(more, "respectUpstream") { // of which each wraps it
			limit = strings.Replace(limit, "366d", "1h", 1)
		}
		t.Run(strings.TrimPrefix(more, ", "), func(t *testing.T) {
			test(t, limited(t, "{limit: "+limit+", headers: [x_ratelimit]"+more+"}"))
		})
	}
}

// The handshake and frames are written by hand, so that no library hides what the middleware does to them.
func TestAWebSocketPassesUntouched(t *testing.T) { eachWay(t, "1/366d", webSocketPasses) }

func webSocketPasses(t *testing.T, s *site) {
	upstream.handle(s.host(), echoFrames)
	conn, err := net.Dial("tcp", s.web)
	must.Succeed(t, err)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	const key = "dGhlIHNhbXBsZSBub25jZQ==" // the example of RFC 6455, as is its answer
	handshake := "GET /ws HTTP/1.1\r\nHost: " + s.host() + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key + "\r\n\r\n"
	fmt.Fprint(conn, handshake)
	answers := bufio.NewReader(conn)
	answer, err := http.ReadResponse(answers, nil)
	if err != nil || answer.StatusCode != http.StatusSwitchingProtocols || answer.Header.Get("Sec-Websocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Fatalf("%+v, %v, want 101", answer, err)
	}
	for _, text := range []string{"hello", "", strings.Repeat("long ", 2000)} {
		writeFrame(t, conn, text)
		if got := readFrame(t, answers); got != text {
			t.Errorf("%d bytes came back, want %d", len(got), len(text))
		}
	}

	// A second connection is over the limit, and gets a plain HTTP rejection.
	r := s.reject("/ws", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", key)
	r.want(t, "X-RateLimit-Remaining", "0")
	writeFrame(t, conn, "still here")
	must.Equal(t, readFrame(t, answers), "still here", "came back")

	// The first survives a change of the configuration.
	s.limit("limit", "limit: 2/366d")
	s.apply()
	writeFrame(t, conn, "and here")
	must.Equal(t, readFrame(t, answers), "and here", "came back")
}

// echoFrames accepts a WebSocket and echoes each frame.
func echoFrames(w http.ResponseWriter, r *http.Request) {
	sum := sha1.Sum([]byte(r.Header.Get("Sec-Websocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	conn, stream, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(sum[:]))
	for {
		text, err := frame(stream)
		if err != nil {
			return
		}
		header := []byte{0x81, 126, 0, 0}
		binary.BigEndian.PutUint16(header[2:], uint16(len(text)))
		if _, err = conn.Write(append(header, text...)); err != nil {
			return
		}
	}
}

// frame reads a text frame, masked or not.
func frame(from io.Reader) ([]byte, error) {
	var header [2]byte
	if _, err := io.ReadFull(from, header[:]); err != nil {
		return nil, err
	}
	if header[0] != 0x81 {
		return nil, fmt.Errorf("no whole text frame: %#x", header[0])
	}
	length := int(header[1] & 0x7f)
	if length == 126 {
		var long [2]byte
		if _, err := io.ReadFull(from, long[:]); err != nil {
			return nil, err
		}
		length = int(binary.BigEndian.Uint16(long[:]))
	}
	var mask [4]byte
	if header[1]&0x80 != 0 {
		if _, err := io.ReadFull(from, mask[:]); err != nil {
			return nil, err
		}
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(from, text); err != nil {
		return nil, err
	}
	for i := range text {
		text[i] ^= mask[i%4]
	}
	return text, nil
}

func readFrame(t *testing.T, from io.Reader) string {
	t.Helper()
	text, err := frame(from)
	must.Succeed(t, err)
	return string(text)
}

// writeFrame writes a text frame as a client does: masked.
func writeFrame(t *testing.T, to io.Writer, text string) {
	t.Helper()
	header := []byte{0x81, 0x80 | 126, 0, 0, 1, 2, 3, 4}
	binary.BigEndian.PutUint16(header[2:], uint16(len(text)))
	masked := []byte(text)
	for i := range masked {
		masked[i] ^= header[4+i%4]
	}
	if _, err := to.Write(append(header, masked...)); err != nil {
		t.Fatal(err)
	}
}

// Each piece is sent after the one before it was received: if pieces were buffered, no next one would come.
func TestAStreamIsFlushedPieceByPiece(t *testing.T) { eachWay(t, "100/366d", streamIsFlushed) }

func streamIsFlushed(t *testing.T, s *site) {
	for _, kind := range []string{"text/event-stream", "text/plain"} {
		t.Run(kind, func(t *testing.T) {
			seen := make(chan struct{})
			upstream.handle(s.host(), func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", kind)
				for i := range 5 {
					fmt.Fprintf(w, "data: %d\n\n", i)
					if err := http.NewResponseController(w).Flush(); err != nil {
						t.Error(err)
					}
					select {
					case <-seen:
					case <-r.Context().Done():
						return
					}
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.host()+"/events", nil)
			must.Succeed(t, err)
			answer, err := s.client.Do(r)
			must.Succeed(t, err)
			defer answer.Body.Close()
			if remaining := answer.Header.Get("X-RateLimit-Remaining"); remaining != "99" && remaining != "98" {
				t.Errorf("the stream was not counted: %v", answer.Header)
			}
			lines := bufio.NewReader(answer.Body)
			for i := range 5 {
				line, err := lines.ReadString('\n')
				if want := fmt.Sprintf("data: %d\n", i); err != nil || line != want {
					t.Fatalf("%q, %v, want %q", line, err, want)
				}
				_, _ = lines.ReadString('\n')
				seen <- struct{}{}
			}
			if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
				t.Errorf("%q, %v after the last piece", rest, err)
			}
		})
	}
}

func TestLargeBodiesPassWhole(t *testing.T) { eachWay(t, "100/366d", largeBodiesPass) }

func largeBodiesPass(t *testing.T, s *site) {
	upstream.handle(s.host(), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(body)
		sum := sha256.Sum256(body)
		w.Header().Set("X-Sum", hex.EncodeToString(sum[:]))
	})
	body := make([]byte, 8<<20)
	_, _ = rand.Read(body)
	for name, reader := range map[string]func() io.Reader{
		"with a length": func() io.Reader { return bytes.NewReader(body) },
		"in chunks":     func() io.Reader { return io.MultiReader(bytes.NewReader(body)) },
	} {
		var answer response
		// Without any middleware, too, Traefik cuts 3 in 1000 of these answers off on a busy machine: when it begins to answer while its HTTP client still
		// looks whether the request's body has ended.
		err := io.ErrUnexpectedEOF
		for tries := 0; tries < 5 && errors.Is(err, io.ErrUnexpectedEOF); tries++ {
			r, wrong := http.NewRequest(http.MethodPost, "http://"+s.host()+"/", reader())
			must.Succeed(t, wrong)
			answer, err = exchange(s.client, r)
		}
		if err != nil || answer.body != string(body) {
			t.Errorf("%s: status %d, %d bytes came back of %d, %v", name, answer.status, len(answer.body), len(body), err)
		}
		sum := sha256.Sum256(body)
		must.Equal(t, answer.trailer.Get("X-Sum"), hex.EncodeToString(sum[:]), "%s: the trailer", name)
	}
}

// The backend first sends an interim response.
func TestInterimResponsesPass(t *testing.T) { eachWay(t, "100/366d", interimResponsesPass) }

func interimResponsesPass(t *testing.T, s *site) {
	upstream.handle(s.host(), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = w.Write([]byte("done"))
	})
	hints := 0
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
		if code == http.StatusEarlyHints && header.Get("Link") != "" {
			hints++
		}
		return nil
	}}
	r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, "http://"+s.host()+"/", nil)
	must.Succeed(t, err)
	if answer, err := exchange(s.client, r); err != nil || answer.body != "done" || hints != 1 {
		t.Errorf("%d, %q, %v, %d early hints, want one", answer.status, answer.body, err, hints)
	}
}

// As without the middleware, the backend notices that its client has left.
func TestTheBackendHearsThatAClientHasLeft(t *testing.T) { eachWay(t, "100/366d", backendHears) }

func backendHears(t *testing.T, s *site) {
	began, left := make(chan struct{}), make(chan struct{})
	upstream.handle(s.host(), func(_ http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
		close(left)
	})
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-began
		leave()
	}()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.host()+"/", nil)
	must.Succeed(t, err)
	if _, err = exchange(s.client, r); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that it was cancelled", err)
	}
	select {
	case <-left:
	case <-time.After(patience):
		t.Error("the backend has not heard of it")
	}
	upstream.handle(s.host(), nil)
	s.admit(1, "/").want(t, "X-RateLimit-Remaining", "98") // it was counted
}
