package replay

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
)

// standardInput is the file name that means standard input.
const standardInput = "-"

// logFile is one of the files that are replayed.
type logFile struct {
	name   string
	number int
	first  int64 // when the first of its requests ended, in nanoseconds
	info   os.FileInfo
	input  io.Reader
	read   *atomic.Int64 // bytes of all files
}

// open opens the file.
func (f *logFile) open() (io.ReadCloser, error) {
	raw := io.NopCloser(f.input)
	if f.name != standardInput {
		file, err := os.Open(f.name)
		if err != nil {
			return nil, plainly(err)
		}
		raw = file
	}
	plain, err := unpacked(&countingReader{raw, f.read})
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{plain, raw}, nil
}

// unpacked returns the contents of a file, which may be gzipped: its beginning shows it.
func unpacked(raw io.Reader) (io.Reader, error) {
	buffered := bufio.NewReaderSize(raw, 64<<10)
	start, err := buffered.Peek(4)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, plainly(err)
	case bytes.HasPrefix(start, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return nil, errors.New("is compressed by zstd; name it as zstd -dc writes it, on standard input: -")
	case !bytes.HasPrefix(start, []byte{0x1f, 0x8b}):
		return buffered, nil
	}
	plain, err := gzip.NewReader(buffered)
	switch {
	case (errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)) && (len(start) < 3 || start[2] == 8): // deflate, as all gzip is
		return nil, errCutOff
	case err != nil:
		return nil, fmt.Errorf("is no gzip, though it begins as one: %w", err)
	}
	return plain, nil
}

// countingReader counts the bytes that are read of all files.
type countingReader struct {
	from io.Reader
	n    *atomic.Int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// plainly returns an error of the operating system without the name of the file.
func plainly(err error) error {
	var failed *os.PathError
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

// errNoLine is the error of a file that has nothing to replay.
var errNoLine = errors.New("has not a single line of an access log that could be read")

// reason says why none of a file's lines is a request: it has the first line that could not be read, else the first that is neither a request nor
// blank. The zero value has none.
type reason struct {
	line int
	err  error
}

// add notes a line. Lines come in their order.
func (r *reason) add(line int, err error) {
	if r.err == nil || isOther(r.err) && !isOther(err) || r.err == errBlank && err != errBlank {
		r.line, r.err = line, err
	}
}

// noLine returns errNoLine with the reason.
func (r *reason) noLine() error {
	if r.err == nil || r.err == errBlank {
		return errNoLine
	}
	return fmt.Errorf("%w (line %d %w)", errNoLine, r.line, r.err)
}

// errCutOff is the error of a gzipped file that ends before anything could be read.
var errCutOff = errors.New("is cut off before its first line that could be read")

// tooEarly is the error of a file whose reading failed before its first readable line.
func tooEarly(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errCutOff
	}
	return plainly(err)
}

// look finds out when the file begins. empty is true for a file without a byte.
func (f *logFile) look() (empty bool, err error) {
	info, err := os.Stat(f.name)
	if err != nil {
		return false, plainly(err)
	}
	switch {
	case info.IsDir():
		return false, errors.New("is a directory; name the files in it")
	case !info.Mode().IsRegular():
		return false, errors.New("is not a regular file, which would be read twice; write - and hand it in on standard input")
	}
	f.info = info
	uncounted := logFile{name: f.name, read: new(atomic.Int64)}
	from, err := uncounted.open()
	if err != nil {
		return false, err
	}
	defer func() { _ = from.Close() }()
	reader := &blockReader{from: from}
	parser := newLineParser(nil)
	var e entry
	var why reason
	for begun := false; ; begun = true {
		b, err := reader.next()
		switch {
		case errors.Is(err, io.EOF) && !begun:
			return true, nil
		case errors.Is(err, io.EOF):
			return false, why.noLine()
		case err != nil:
			return false, tooEarly(err)
		}
		for n, line := range b.lines() {
			err := parser.parse(line, &e)
			if err == nil {
				f.first = e.end
				return false, nil
			}
			why.add(n, err)
		}
	}
}
