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

// standardInput is the name of a file that stands for it.
const standardInput = "-"

// logFile is one of the files that are replayed.
type logFile struct {
	name   string
	number int
	size   int64 // in bytes, as it lies on the disk; 0: not known
	first  int64 // when the first of its requests ended, in nanoseconds
	info   os.FileInfo
	input  io.Reader
	read   *atomic.Int64 // bytes of all files
}

// open opens the file, and sees by its beginning whether it is gzipped.
func (f *logFile) open() (io.Reader, io.Closer, error) {
	raw, closer := f.input, io.Closer(io.NopCloser(nil))
	if f.name != standardInput {
		file, err := os.Open(f.name)
		if err != nil {
			return nil, nil, plainly(err)
		}
		raw, closer = file, file
	}
	buffered := bufio.NewReaderSize(&countingReader{raw, f.read}, 64<<10)
	start, err := buffered.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		_ = closer.Close()
		return nil, nil, plainly(err)
	}
	if bytes.HasPrefix(start, []byte{0x28, 0xb5, 0x2f, 0xfd}) {
		_ = closer.Close()
		return nil, nil, errors.New("is compressed by zstd; name it as zstd -dc writes it, on standard input: -")
	}
	if !bytes.HasPrefix(start, []byte{0x1f, 0x8b}) {
		return buffered, closer, nil
	}
	unpacked, err := gzip.NewReader(buffered)
	if (errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)) && (len(start) < 3 || start[2] == 8) { // deflate, as all gzip is
		_ = closer.Close()
		return nil, nil, errCutOff
	}
	if err != nil {
		_ = closer.Close()
		return nil, nil, fmt.Errorf("is no gzip, though it begins as one: %w", err)
	}
	return unpacked, closer, nil
}

// countingReader counts what is read of all files.
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

// errNoLine is said of a file that has nothing to replay.
var errNoLine = errors.New("has not a single line of an access log that could be read")

// reason is why none of a file's lines is a request: its first line that could not be read, else its first that is something else than a
// blank one. The zero value knows of none.
type reason struct {
	line int
	err  error
}

// add hears of a line, each behind those before it.
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

// errCutOff is said of a gzipped file that ends before anything could be read.
var errCutOff = errors.New("is cut off before its first line that could be read")

// tooEarly says that a file could not be read on before there was a line that could be.
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
	if info.IsDir() {
		return false, errors.New("is a directory; name the files in it")
	}
	f.info = info
	if info.Mode().IsRegular() {
		f.size = info.Size()
	}
	if !info.Mode().IsRegular() {
		return false, errors.New("is not a regular file, which would be read twice; write - and hand it in on standard input")
	}
	counter := f.read
	defer func() { f.read = counter }()
	f.read = new(atomic.Int64)
	from, closer, err := f.open()
	if err != nil {
		return false, err
	}
	defer func() { _ = closer.Close() }()
	lines := &blockReader{from: from}
	parser := newLineParser(nil)
	var e entry
	var why reason
	blocks := 0
	for {
		b, err := lines.next()
		if err != nil {
			if blocks == 0 && errors.Is(err, io.EOF) {
				return true, nil
			}
			if !errors.Is(err, io.EOF) {
				return false, tooEarly(err)
			}
			return false, why.noLine()
		}
		blocks++
		for n := b.first; len(b.data) > 0; n++ {
			var line []byte
			line, b.data = cutLine(b.data)
			if n == 1 {
				line = bytes.TrimPrefix(line, byteOrderMark)
			}
			err := parser.parse(line, &e)
			if err == nil {
				f.first = e.end
				return false, nil
			}
			why.add(n, err)
		}
	}
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// cutLine returns the first of lines, without its line break, and the others.
func cutLine(data []byte) (line, rest []byte) {
	end := bytes.IndexByte(data, '\n')
	if end < 0 {
		return data, nil
	}
	return data[:end], data[end+1:]
}
