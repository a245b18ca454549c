package replay

import (
	"bytes"
	"io"
	"iter"
	"sync"
)

// The bounds of one read.
const (
	blockSize  = 256 << 10
	longestRow = 4 << 20 // longer lines are skipped
)

// blockReader reads blocks of whole lines. It is not safe for concurrent use.
type blockReader struct {
	from  io.Reader
	rest  []byte // the data after the last line break
	lines int    // how many lines were returned
	err   error  // of from
}

// block has whole lines. The last line of a file may have no line break.
type block struct {
	data    []byte
	first   int // number of the first line, counted from 1
	tooLong int // number of a line after them that was too long; 0: none
}

// lines returns each line with its number, without a byte order mark at the beginning of the file.
func (b *block) lines() iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		n := b.first
		for line := range bytes.Lines(b.data) {
			if n == 1 {
				line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
			}
			if !yield(n, line) {
				return
			}
			n++
		}
	}
}

// buffers has the buffers of parsed blocks for reuse.
var buffers = sync.Pool{New: func() any { return new([blockSize]byte) }}

// free returns the memory of a block to buffers. Nothing may refer to it any more.
func (b *block) free() {
	if cap(b.data) == blockSize {
		buffers.Put((*[blockSize]byte)(b.data[:blockSize]))
	}
	b.data = nil
}

// next returns the next block, or the error that ended the file: io.EOF at its regular end. A block's data belongs to the caller.
func (b *blockReader) next() (block, error) {
	buffer := buffers.Get().(*[blockSize]byte)[:]
	if len(b.rest) > blockSize/2 {
		buffer = make([]byte, 2*len(b.rest))
	}
	n := copy(buffer, b.rest)
	b.rest = b.rest[:0]
	for {
		for n < len(buffer) && b.err == nil {
			var read int
			read, b.err = b.from.Read(buffer[n:])
			n += read
		}
		end := bytes.LastIndexByte(buffer[:n], '\n') + 1
		switch {
		case b.err != nil && n == 0:
			return block{}, b.err
		case b.err != nil:
			return b.hand(buffer[:n]), nil
		case end > 0:
			b.rest = append(b.rest, buffer[end:n]...)
			return b.hand(buffer[:end]), nil
		case n >= longestRow:
			return b.passOver(), nil
		}
		buffer = append(buffer, make([]byte, len(buffer))...)
	}
}

// hand returns whole lines as a block.
func (b *blockReader) hand(data []byte) block {
	one := block{data: data, first: b.lines + 1}
	b.lines += bytes.Count(data, []byte{'\n'})
	if len(data) > 0 && data[len(data)-1] != '\n' {
		b.lines++
	}
	return one
}

// passOver skips the rest of a line that is too long.
func (b *blockReader) passOver() block {
	b.lines++
	buffer := make([]byte, blockSize)
	for b.err == nil {
		var n int
		n, b.err = b.from.Read(buffer)
		if end := bytes.IndexByte(buffer[:n], '\n'); end >= 0 {
			b.rest = append(b.rest, buffer[end+1:n]...)
			break
		}
	}
	return block{first: b.lines, tooLong: b.lines}
}
