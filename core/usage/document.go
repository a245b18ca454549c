// Package usage lets the instances of a proxy tell each other what they have admitted. It is what eventual consistency is made of, whatever carries it: a
// storage that keeps blobs and has no atomic increment, such as a folder, or Redis. It knows no proxy and no algorithm.
//
// Each instance tells its own counts, as absolute numbers that only grow while their slots last. So it makes no difference whether a document is read once,
// several times, late, or never again: what is new is the difference from the largest number that was read before. A document that cannot be read takes
// nothing back, and what it would have said comes with the next one that can.
//
//	Ledger    what this instance has admitted
//	Document  what of that it tells
//	Others    what other instances have told
//
// What an instance admits is known to another after at most W + R + d: W is the interval of writing, R that of reading, and d the longest that a write
// and a read take together.
//
// Slots are times by the instances' wall clocks. A clock that differs from the others' makes a count end earlier or later by so much.
package usage

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
)

// Slot is a part of time under a rule, from Start until End, in microseconds since the Unix epoch.
type Slot struct {
	Rule       uint64 // a hash of the rule's identity
	Start, End int64
}

// Counts says how many units were admitted in a slot, by keys, which are hashes of the clients'. Units[i] is of Keys[i], and at least 1. (Each is in a
// list of its own, since an interpreted program reads and writes such a list in one step.)
type Counts struct {
	Slot  Slot
	Keys  []uint64
	Units []uint32

	Serial int64 // of news: it grows with each document that is learnt from; see Others.Of
}

// Mark says that a key was blocked or reset by hand: it begins afresh. Times are as in Slot.
type Mark struct {
	Rule, Key uint64
	At        int64 // when that was; of two marks of a key the later one holds
	Until     int64 // the end of the block; At: it was a reset, or the end of a block
	End       int64 // from when on nothing counts that was admitted before
}

// NewInstance returns the name of an instance that nobody else has.
func NewInstance() string {
	id := make([]byte, ofID)
	_, _ = rand.Read(id)
	return hex.EncodeToString(id)
}

// MaxInstances is of how many other instances is read what they tell.
const MaxInstances = 512

// The bounds of what an instance tells.
const (
	MaxCounts = 1_000_000 // of an instance
	MaxMarks  = 10_000    // of an instance
	MaxUnits  = 1<<32 - 1 // of a key in a slot

	maxSlots = 100_000
)

// MaxBytes is how long a document is at most.
const MaxBytes = int64(head + maxSlots*ofSlot + MaxCounts*ofCount + MaxMarks*ofMark + 4)

// Document is what an instance tells: all that it has admitted in slots that are not over, or what has changed since it told last. Numbers are absolute, and
// those of a slot only grow. So it makes no difference whether a document is read once, several times, late, or never, if a later one has the same slots.
//
// As bytes it is, with numbers in big endian:
//
//	8   "WEIRTLY2", the format and its version
//	4   how many bytes there are
//	16  the instance
//	8   the sequence: how many documents the instance has told
//	4   how many slots there are
//	4   how many marks
//	…   for each slot: 8 bytes of its rule, its start, its end, and 4 bytes: how many keys have counts in it
//	…   for each slot: 8 bytes of each key, and then 4 bytes of the units of each
//	…   for each mark: 8 bytes of its rule, its key, its time, its end and when nothing before it counts
//	4   the CRC-32C of everything before it
//
// So a count takes 12 bytes, and 10,000 keys with one count take 120 KB.
type Document struct {
	Instance string // of 32 hexadecimal digits. No two processes have the same, and a process that starts again has another
	Sequence uint64
	Counts   []Counts
	Marks    []Mark
}

const (
	magic    = "WEIRTLY"
	version  = "2"
	ofID     = 16
	lengthAt = len(magic) + len(version)
	head     = lengthAt + 4 + ofID + 8 + 4 + 4
	ofSlot   = 3*8 + 4
	ofCount  = 8 + 4
	ofMark   = 5 * 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode returns the bytes of a document.
func Encode(d *Document) []byte {
	var b bytes.Buffer
	length := head + len(d.Counts)*ofSlot + len(d.Marks)*ofMark + 4
	for i := range d.Counts {
		length += len(d.Counts[i].Keys) * ofCount
	}
	b.Grow(length)
	b.WriteString(magic + version)
	id, _ := hex.DecodeString(d.Instance)
	put := func(list interface{}) { _ = binary.Write(&b, binary.BigEndian, list) } // a buffer never fails
	put(uint32(length))
	b.Write(id)
	put(d.Sequence)
	put([]uint32{uint32(len(d.Counts)), uint32(len(d.Marks))})
	for i := range d.Counts {
		c := &d.Counts[i]
		put([]uint64{c.Slot.Rule, uint64(c.Slot.Start), uint64(c.Slot.End)})
		put(uint32(len(c.Keys)))
	}
	for i := range d.Counts {
		put(d.Counts[i].Keys)
		put(d.Counts[i].Units)
	}
	for _, m := range d.Marks {
		put([]uint64{m.Rule, m.Key, uint64(m.At), uint64(m.Until), uint64(m.End)})
	}
	put(crc32.Checksum(b.Bytes(), castagnoli))
	return b.Bytes()
}

// Length returns how many bytes the document has that b begins with; 0: b is too short to say. The error says why no document begins so.
func Length(b []byte) (int, error) {
	if n := len(magic); len(b) >= n && string(b[:n]) != magic {
		return 0, errors.New("it is no tally: a tally begins with " + magic)
	}
	if len(b) < head+4 {
		return 0, nil
	}
	if v := string(b[len(magic):lengthAt]); v != version {
		return 0, fmt.Errorf("its version is %q; this program reads version %s", v, version)
	}
	n := int64(binary.BigEndian.Uint32(b[lengthAt:]))
	if n > MaxBytes {
		return 0, fmt.Errorf("it has %d bytes; a tally has at most %d", n, MaxBytes)
	}
	if n < int64(head+4) {
		return 0, fmt.Errorf("it claims to have %d bytes", n)
	}
	return int(n), nil
}

// Decode reads a document. The error says why bytes are no such document.
func Decode(b []byte) (*Document, error) {
	var none *Document
	if len(b) < len(magic) {
		return none, errors.New("it is no tally: a tally begins with " + magic)
	}
	n, err := Length(b)
	if err != nil {
		return none, err
	}
	if n == 0 || n > len(b) {
		return none, fmt.Errorf("it is cut off after %d bytes", len(b))
	}
	if n < len(b) {
		return none, fmt.Errorf("%d bytes follow it", len(b)-n)
	}
	if crc32.Checksum(b[:n-4], castagnoli) != binary.BigEndian.Uint32(b[n-4:]) {
		return none, errors.New("its checksum is wrong: it is damaged or cut off")
	}
	d := &Document{Instance: hex.EncodeToString(b[lengthAt+4 : lengthAt+4+ofID]), Sequence: binary.BigEndian.Uint64(b[lengthAt+4+ofID:])}
	slots := int64(binary.BigEndian.Uint32(b[head-8:]))
	marks := int64(binary.BigEndian.Uint32(b[head-4:]))
	if slots > maxSlots || marks > MaxMarks || int64(head)+slots*ofSlot+marks*ofMark+4 > int64(n) {
		return none, fmt.Errorf("it claims %d slots and %d marks in %d bytes", slots, marks, n)
	}
	sizes := make([]int64, slots)
	of := b[head:]
	counts := int64(0)
	for i := range sizes {
		sizes[i] = int64(binary.BigEndian.Uint32(of[ofSlot*i+24:]))
		counts += sizes[i]
	}
	if counts > MaxCounts || int64(head)+slots*ofSlot+counts*ofCount+marks*ofMark+4 != int64(n) {
		return none, fmt.Errorf("it claims %d counts in %d bytes", counts, n)
	}
	rest := bytes.NewReader(of[slots*ofSlot:])
	d.Counts = make([]Counts, slots)
	for i := range d.Counts {
		c := &d.Counts[i]
		at := of[ofSlot*i:]
		c.Slot = Slot{Rule: binary.BigEndian.Uint64(at), Start: int64(binary.BigEndian.Uint64(at[8:])), End: int64(binary.BigEndian.Uint64(at[16:]))}
		if c.Slot.Start < 0 || c.Slot.End <= c.Slot.Start {
			return none, fmt.Errorf("slot %d is out of range", i+1)
		}
		c.Keys = make([]uint64, sizes[i])
		c.Units = make([]uint32, sizes[i])
		_ = binary.Read(rest, binary.BigEndian, c.Keys) // there are enough bytes
		_ = binary.Read(rest, binary.BigEndian, c.Units)
	}
	numbers := make([]int64, 5*marks)
	_ = binary.Read(rest, binary.BigEndian, numbers)
	for i := int64(0); i < marks; i++ {
		m := Mark{Rule: uint64(numbers[5*i]), Key: uint64(numbers[5*i+1]), At: numbers[5*i+2], Until: numbers[5*i+3], End: numbers[5*i+4]}
		if m.At < 0 || m.Until < m.At || m.End < m.Until {
			return none, fmt.Errorf("mark %d is out of range", i+1)
		}
		d.Marks = append(d.Marks, m)
	}
	return d, nil
}
