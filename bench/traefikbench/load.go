package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"
)

const (
	connections = 32 // concurrent requests
	each        = 16 // clients that take turns in each of these, if there are many
)

// load has the connections to a scenario's entry point: one for each concurrent request, or several that take turns.
type load struct {
	scenario scenario
	workers  [connections][]*connection
}

type connection struct {
	net.Conn
	answers *bufio.Reader
	request []byte // the request, up to the number of its key
}

// dial makes the connections for the load of a scenario.
func dial(address string, s scenario) (*load, error) {
	l := &load{scenario: s}
	perWorker := 1
	if s.clients == many {
		perWorker = each
	}
	for w := range l.workers {
		for i := range perWorker {
			n := w*perWorker + i
			dialer := net.Dialer{Timeout: 5 * time.Second}
			if s.clients == many { // on Linux all of 127.0.0.0/8 is this host
				dialer.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 1+byte(n/250), 1+byte(n%250))}
			}
			conn, err := dialer.Dial("tcp", address)
			if err != nil {
				l.close()
				return nil, err
			}
			head := "GET / HTTP/1.1\r\nHost: " + address + "\r\n"
			if s.clients == forwarded {
				head += fmt.Sprintf("X-Forwarded-For: 198.51.100.7, 203.0.113.%d\r\n", 1+n)
			}
			l.workers[w] = append(l.workers[w], &connection{conn, bufio.NewReader(conn), []byte(head + keyHeader + ": key-")})
		}
	}
	return l, nil
}

func (l *load) close() {
	for _, conns := range l.workers {
		for _, c := range conns {
			c.Close()
		}
	}
}

// run makes requests for some time, at least so many by each worker, each sent after the answer to the one before. It returns how many
// there were, and how long they took. An answer that the scenario does not expect is an error.
func (l *load) run(ctx context.Context, length time.Duration, atLeast int) (requests int, took time.Duration, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := time.Now()
	for w := range l.workers {
		wg.Go(func() {
			n, failed := l.work(ctx, w, start.Add(length), atLeast)
			mu.Lock()
			requests += n
			if failed != nil {
				err = failed
			}
			mu.Unlock()
		})
	}
	wg.Wait()
	took = time.Since(start)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && requests == 0 {
		err = errors.New("no request was answered")
	}
	return requests, took, err
}

func (l *load) work(ctx context.Context, worker int, end time.Time, atLeast int) (requests int, err error) {
	conns := l.workers[worker]
	for _, c := range conns {
		c.SetDeadline(end.Add(20 * time.Second))
	}
	for ctx.Err() == nil && (time.Now().Before(end) || requests < atLeast) {
		key := int64(firstKey)
		switch l.scenario.clients {
		case keyed:
			key += int64(worker*each + requests%each)
		case fresh:
			key = time.Now().UnixNano()
		}
		if err := conns[requests%len(conns)].do(key, l.scenario); err != nil {
			return requests, err
		}
		requests++
	}
	return requests, nil
}

// firstKey has as many digits as the time in nanoseconds.
const firstKey = 1_000_000_000_000_000_000

// do makes a request.
func (c *connection) do(key int64, s scenario) error {
	request := append(strconv.AppendInt(c.request, key, 10), "\r\n\r\n"...)
	if _, err := c.Write(request); err != nil {
		return err
	}
	status, fields, err := c.readAnswer()
	if err != nil {
		return err
	}
	if status != s.status {
		return fmt.Errorf("status %d where it should be %d", status, s.status)
	}
	if all := 1<<len(fieldNames) - 1; s.fields && fields != all {
		return fmt.Errorf("header fields are missing of %q: there are %05b", fieldNames, fields)
	}
	return nil
}

// readAnswer returns an answer's status, and a bit for each of fieldNames that it has. It reads only the forms of HTTP that Traefik writes,
// and so is cheaper than http.ReadResponse.
func (c *connection) readAnswer() (status, fields int, err error) {
	line, err := c.answers.ReadSlice('\n')
	if err != nil {
		return 0, 0, err
	}
	if len(line) < 12 || string(line[:9]) != "HTTP/1.1 " {
		return 0, 0, fmt.Errorf("no status line: %q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, 0, fmt.Errorf("no status line: %q", line)
	}
	length := -1
	for {
		if line, err = c.answers.ReadSlice('\n'); err != nil {
			return status, fields, err
		}
		colon := bytes.IndexByte(line, ':')
		if colon < 0 {
			break
		}
		name, value := line[:colon], bytes.TrimSpace(line[colon+1:])
		if string(name) == "Content-Length" {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return status, fields, fmt.Errorf("%q: %w", line, err)
			}
			continue
		}
		for i, field := range fieldNames {
			if string(name) == field && len(value) > 0 {
				fields |= 1 << i
			}
		}
	}
	if length < 0 {
		return status, fields, errors.New("an answer without Content-Length")
	}
	_, err = c.answers.Discard(length)
	return status, fields, err
}
