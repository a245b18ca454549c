package replay

import (
	"bytes"
	"io"
	"iter"
	"sync"
)

// Bounds of what is read at a time.
const (
	blockSize  = 256 << 10
	longestRow = 4 << 20 // a line that is longer is passed over
)

// blockReader cuts what it reads into blocks of whole lines. It is for one goroutine.
type blockReader struct {
	from  io.Reader
	rest  []byte // what was read behind the last line break
	lines int    // that were handed out
	err   error  // of from
}

// block are whole lines. The last of a file may have no line break.
type block struct {
	data    []byte
	first   int // number of the first line, counted from 1
	tooLong int // number of a line behind them that was too long; 0: none
}

// lines returns each line with its number, and without the byte order mark that a file may begin with.
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

// buffers are those of blocks that were parsed, for others.
var buffers = sync.Pool{New: func() any { return new([blockSize]byte) }}

// free gives the memory of a block back, when nothing refers to it any more.
func (b *block) free() {
	if cap(b.data) == blockSize {
		buffers.Put((*[blockSize]byte)(b.data[:blockSize]))
	}
	b.data = nil
}

// next returns the next block, or the error that ended the file, io.EOF where it is just over. A block's data belongs to the caller.
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

// hand returns lines as a block.
func (b *blockReader) hand(data []byte) block {
	one := block{data: data, first: b.lines + 1}
	b.lines += bytes.Count(data, []byte{'\n'})
	if len(data) > 0 && data[len(data)-1] != '\n' {
		b.lines++
	}
	return one
}

// passOver reads to the end of a line that is too long.
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
