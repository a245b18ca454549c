package tally

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
)

// Instance identifies a process. No two processes have the same, and a process that starts again has another.
type Instance [16]byte

// Key identifies a key of a rule: a hash of the rule's identity and the key.
type Key [16]byte

// Slot is a key's part of time, from Start until End, in microseconds since the Unix epoch.
type Slot struct {
	Key        Key
	Start, End int64
}

// Count says how many units were admitted in a slot. Units are from 1 to MaxUnits.
type Count struct {
	Slot
	Units int64
}

// The bounds of a document.
const (
	MaxCounts = 100_000 // of an instance
	MaxUnits  = 1 << 50 // of a slot

	MaxBytes = int64(head + MaxCounts*most + 4) // of a blob
)

// document is what an instance writes: all its counts of slots that are not over.
//
// As bytes it is, with numbers in big endian:
//
//	8   "WEIRTLY1", the format and its version
//	16  the instance
//	8   the sequence: how many documents the instance has written
//	4   how many counts follow
//	…   for each count, in the order of keys and then of time: 16 bytes of the key, and as varints its start, its length and its units
//	4   the CRC-32C of everything before it
//
// A count takes some 32 bytes, so that 10,000 counts take 320 KB.
type document struct {
	instance Instance
	sequence uint64
	counts   []Count
}

const (
	magic   = "WEIRTLY"
	version = "1"
	head    = len(magic) + len(version) + len(Instance{}) + 8 + 4
	least   = len(Key{}) + 3 // bytes of a count
	most    = len(Key{}) + 3*binary.MaxVarintLen64
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode returns the bytes of a document. It sorts the counts.
func (d *document) encode() []byte {
	slices.SortFunc(d.counts, func(a, b Count) int { return compare(&a.Slot, &b.Slot) })
	b := make([]byte, 0, head+len(d.counts)*32+4)
	b = append(b, magic+version...)
	b = append(b, d.instance[:]...)
	b = binary.BigEndian.AppendUint64(b, d.sequence)
	b = binary.BigEndian.AppendUint32(b, uint32(len(d.counts)))
	for i := range d.counts {
		c := &d.counts[i]
		b = append(b, c.Key[:]...)
		b = binary.AppendUvarint(b, uint64(c.Start))
		b = binary.AppendUvarint(b, uint64(c.End-c.Start))
		b = binary.AppendUvarint(b, uint64(c.Units))
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// compare returns the order of slots in a document, as bytes.Compare does.
func compare(a, b *Slot) int {
	return cmp.Or(bytes.Compare(a.Key[:], b.Key[:]), cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End))
}

// decode reads a document. It accepts exactly what encode writes. The error says why bytes are no such document.
func decode(b []byte) (*document, error) {
	if len(b) < len(magic) || string(b[:len(magic)]) != magic {
		return nil, errors.New("it is no tally: a tally begins with " + magic)
	}
	if len(b) < head+4 {
		return nil, fmt.Errorf("it is cut off after %d bytes", len(b))
	}
	if v := string(b[len(magic)]); v != version {
		return nil, fmt.Errorf("its version is %q; this program reads version %s", v, version)
	}
	if int64(len(b)) > MaxBytes {
		return nil, fmt.Errorf("it has %d bytes; a tally has at most %d", len(b), MaxBytes)
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return nil, errors.New("its checksum is wrong: it is damaged or cut off")
	}
	d := &document{}
	rest := body[len(magic)+len(version):]
	rest = rest[copy(d.instance[:], rest):]
	d.sequence = binary.BigEndian.Uint64(rest)
	n := int64(binary.BigEndian.Uint32(rest[8:]))
	rest = rest[12:]
	if n > MaxCounts || n*int64(least) > int64(len(rest)) {
		return nil, fmt.Errorf("it claims %d counts in %d bytes", n, len(rest))
	}
	d.counts = make([]Count, n)
	for i := range d.counts {
		c := &d.counts[i]
		if len(rest) < least {
			return nil, fmt.Errorf("count %d is cut off", i+1)
		}
		rest = rest[copy(c.Key[:], rest):]
		var numbers [3]int64
		for k := range numbers {
			v, size := binary.Uvarint(rest)
			if size <= 0 || v > math.MaxInt64 || size > 1 && rest[size-1] == 0 {
				return nil, fmt.Errorf("count %d has an invalid number", i+1)
			}
			numbers[k] = int64(v)
			rest = rest[size:]
		}
		c.Start, c.End, c.Units = numbers[0], numbers[0]+numbers[1], numbers[2]
		if c.End <= c.Start || c.Units < 1 || c.Units > MaxUnits {
			return nil, fmt.Errorf("count %d is out of range", i+1)
		}
		if i > 0 && compare(&d.counts[i-1].Slot, &c.Slot) >= 0 {
			return nil, fmt.Errorf("count %d is out of order", i+1)
		}
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%d bytes follow its counts", len(rest))
	}
	return d, nil
}
