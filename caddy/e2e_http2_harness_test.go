package ratelimit_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// frames is a request as a client of HTTP/2 sends it, whether it may or not.
type frames struct {
	fields   string   // a line "name: value" for each, pseudo-header fields too
	data     []string // frames of the body; nil: the request ends with its fields
	trailers string   // as fields; "": there are none
	open     bool     // the request does not end
	reset    bool     // the client gives it up
}

// sendFrames sends a request over an HTTP/2 connection of its own, without TLS, and returns the answer. A status of 0 says that the server has given none, and
// has reset the stream or closed the connection.
func (s *server) sendFrames(f frames) (response, error) {
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		return response{}, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return response{}, err
	}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return response{}, err
	}
	framer := http2.NewFramer(conn, conn)
	framer.AllowIllegalWrites = true
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := framer.WriteSettings(); err != nil {
		return response{}, err
	}
	// What follows may come too late for the server, which has answered and closed the stream or the connection. So errors of writing say nothing.
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: encoded(f.fields), EndHeaders: true, EndStream: !f.open && f.data == nil && f.trailers == ""})
	for i, data := range f.data {
		_ = framer.WriteData(1, !f.open && i == len(f.data)-1 && f.trailers == "", []byte(data))
	}
	if f.trailers != "" {
		_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: encoded(f.trailers), EndHeaders: true, EndStream: true})
	}
	if f.reset {
		_ = framer.WriteRSTStream(1, http2.ErrCodeCancel)
		_ = framer.WritePing(false, [8]byte{}) // its answer says that the server has seen this
	}
	return answerOf(framer)
}

// answerOf reads the answer to the only request of a connection.
func answerOf(framer *http2.Framer) (response, error) {
	r := response{header: make(http.Header), proto: "HTTP/2.0"}
	for {
		read, err := framer.ReadFrame()
		if err == io.EOF || strings.Contains(fmt.Sprint(err), "connection reset by peer") {
			return r, nil
		}
		if err != nil {
			return r, err
		}
		switch frame := read.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = framer.WriteSettingsAck()
			}
		case *http2.MetaHeadersFrame:
			status, err := strconv.Atoi(frame.PseudoValue("status"))
			if err != nil || status < 200 {
				continue
			}
			r.status = status
			for _, field := range frame.RegularFields() {
				r.header.Add(field.Name, field.Value)
			}
			if frame.StreamEnded() {
				return r, nil
			}
		case *http2.DataFrame:
			r.body += string(frame.Data())
			if frame.StreamEnded() {
				return r, nil
			}
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return r, nil
		case *http2.PingFrame:
			if frame.IsAck() {
				return r, nil
			}
		}
	}
}

// encoded returns lines "name: value" as a block of header fields.
func encoded(lines string) []byte {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for line := range strings.Lines(lines) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		_ = encoder.WriteField(hpack.HeaderField{Name: name, Value: value}) // a buffer takes all
	}
	return block.Bytes()
}
