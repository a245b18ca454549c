package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

// ahead is how many requests a client of a flood writes before it reads their answers.
const ahead = 4

// startFlood is startLoad with clients that take little of the processor. Each has one connection, writes several requests before it reads
// their answers, and reads of an answer only the status. It does so once in every, or with 0 as fast as it can. make returns a request's path,
// and its own header fields, if any, each with \r\n before it.
func (s *site) startFlood(clients, each int, every time.Duration, make func(client, n int) (path, fields string)) *load {
	l := &load{end: newSignal()}
	for i := range clients {
		l.clients.Go(func() {
			if err := s.flood(l, each, every, func(n int) (path, fields string) { return make(i, n) }); err != nil {
				l.add(response{}, err, 0)
			}
		})
	}
	return l
}

// flood makes the requests of one client. The error is that of the first request without an answer.
func (s *site) flood(l *load, each int, every time.Duration, make func(n int) (path, fields string)) error {
	conn, err := net.Dial("tcp", s.web)
	if err != nil {
		return err
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	var requests []byte
	var turn <-chan time.Time // nil: there is none to wait for
	if every > 0 {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		turn = ticker.C
	}
	for n := 0; each == 0 || n < each; {
		if turn == nil {
			select {
			case <-l.end:
				return nil
			default:
			}
		} else {
			select {
			case <-l.end:
				return nil
			case <-turn:
			}
		}
		requests = requests[:0]
		begun := n
		for ; n < begun+ahead && (each == 0 || n < each); n++ {
			path, fields := make(n)
			requests = fmt.Appendf(requests, "GET %s HTTP/1.1\r\nHost: %s%s\r\n\r\n", path, s.host(), fields)
		}
		_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
		began := time.Now()
		if _, err = conn.Write(requests); err != nil {
			return err
		}
		for range n - begun {
			status, err := readStatus(answers)
			if err != nil {
				return err
			}
			l.add(response{status: status}, nil, time.Since(began))
		}
	}
	return nil
}

// readStatus reads an answer with a known length, and returns its status.
func readStatus(answers *bufio.Reader) (status int, err error) {
	line, err := answers.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(line) < len("HTTP/1.1 200") || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return 0, fmt.Errorf("an answer begins with %q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, err
	}
	length := -1
	for {
		if line, err = answers.ReadSlice('\n'); err != nil {
			return 0, err
		}
		name, value, found := bytes.Cut(bytes.TrimSpace(line), []byte(": "))
		switch {
		case len(name) == 0 && length < 0:
			return 0, errors.New("an answer has no Content-Length")
		case len(name) == 0:
			_, err = answers.Discard(length)
			return status, err
		case found && string(name) == "Content-Length":
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, err
			}
		}
	}
}
