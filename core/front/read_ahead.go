package front

import (
	"io"
	"net/http"
	"sync"
)

// readAhead is how much of a body is read while its request waits: about as much memory as one that waits takes in any case.
const readAhead = 16 << 10

// ReadAhead begins to read the body of a request that waits, and returns the request with it as if it had not been read. Over HTTP/1,
// net/http notices that a client has left only while it reads the body, or after its end. Without this a client could send a small body,
// close its connection, and still have its request wait. At most 16 KiB are read, as they arrive; only a reader of the body waits for them.
//
// The caller must call Ahead.Stop when the wait is over; nothing more is read ahead then. Another goroutine uses the body's reader until
// then, and until a read that has begun before ends, so the reader must not change the request or the response. (If the client expects
// 100-continue, the first read sends it.) For a body that need not be read, Ahead is nil.
func ReadAhead(r *http.Request) (*http.Request, *Ahead) {
	var none *Ahead
	if r.ProtoMajor != 1 || r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return r, none
	}
	b := &Ahead{from: r.Body, reading: true}
	b.arrived.L = &b.mu
	same := r.WithContext(r.Context())
	same.Body = b
	if len(r.Trailer) > 0 { // net/http fills it in where it reads the end of the body, when others may already look at it
		b.trailer = r.Trailer
		b.shown = make(http.Header, len(r.Trailer))
		for name, values := range r.Trailer {
			b.shown[name] = values
		}
		same.Trailer = b.shown
	}
	size := int64(2 << 10)
	if r.ContentLength > 0 && r.ContentLength < size {
		size = r.ContentLength
	}
	go keepReading(b, make([]byte, size))
	return same, b
}

// Ahead is a body whose beginning is read ahead.
type Ahead struct {
	from io.ReadCloser

	mu      sync.Mutex
	arrived sync.Cond // that reading has changed, or ahead
	reading bool      // the goroutine of keepReading reads, or is about to
	over    bool      // it is to read no more
	ahead   []byte    // what it has read, and nobody else
	read    int       // how much it has read
	err     error     // what it has met behind that

	trailer http.Header // as net/http knows it; nil: none was announced
	shown   http.Header // as the request has it
}

// keepReading reads ahead until there is enough, or the wait is over.
func keepReading(b *Ahead, chunk []byte) {
	more := true
	for more {
		n, err := readSome(b, chunk)
		b.mu.Lock()
		b.ahead = append(b.ahead, chunk[:n]...)
		b.read += n
		b.err = err
		more = err == nil && !b.over && b.read < readAhead
		b.reading = more
		b.arrived.Broadcast()
		b.mu.Unlock()
	}
}

// readSome reads once. A reader that panics, which nobody above would catch, has failed.
func readSome(b *Ahead, chunk []byte) (n int, err error) {
	defer func() {
		if recover() != nil {
			n = 0
			err = io.ErrUnexpectedEOF
		}
	}()
	n, err = b.from.Read(chunk)
	return n, err
}

// Stop ends the reading ahead. On a nil Ahead it does nothing.
func (b *Ahead) Stop() {
	if b == nil {
		return
	}
	b.mu.Lock()
	b.over = true
	b.mu.Unlock()
}

// Read returns first the bytes that were read ahead, and then the rest of the body.
func (b *Ahead) Read(p []byte) (int, error) {
	b.mu.Lock()
	b.over = true
	for b.reading && len(b.ahead) == 0 { // for what this would wait for, too
		b.arrived.Wait()
	}
	if len(b.ahead) == 0 && b.err == nil {
		b.mu.Unlock()
		n, err := b.from.Read(p)
		if err == io.EOF {
			b.showTrailer()
		}
		return n, err
	}
	n := copy(p, b.ahead)
	b.ahead = b.ahead[n:]
	err := b.err
	if len(b.ahead) > 0 || b.reading {
		err = nil
	}
	b.mu.Unlock()
	if err == io.EOF {
		b.showTrailer()
	}
	return n, err
}

// showTrailer copies to the request the trailer that net/http has filled in.
func (b *Ahead) showTrailer() {
	for name, values := range b.trailer {
		b.shown[name] = values
	}
}

// Close closes the body.
func (b *Ahead) Close() error {
	b.Stop()
	return b.from.Close()
}
