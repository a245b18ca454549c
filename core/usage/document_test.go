package usage

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"reflect"
	"strings"
	"testing"
)

func someDocument() *Document {
	return &Document{Instance: "01020000000000000000000000000000", Sequence: 7, Counts: []Counts{
		{Slot: Slot{1, 0, 1}, Keys: []uint64{1}, Units: []uint32{1}},
		{Slot: Slot{1, 1_700_000_000_000_000, 1_700_000_060_000_000}, Keys: []uint64{5, 3}, Units: []uint32{300, MaxUnits}},
	}, Marks: []Mark{{1, 3, 4, 5, 6}}}
}

func TestDocumentIsReadAsItWasWritten(t *testing.T) {
	for _, d := range []*Document{someDocument(), {Instance: "01020000000000000000000000000000", Counts: []Counts{}}} {
		got, err := Decode(Encode(d))
		if err != nil || !reflect.DeepEqual(got, d) {
			t.Errorf("%+v: %+v, %v", d, got, err)
		}
	}
}

func TestDocumentThatIsCutOffOrDamagedIsRefused(t *testing.T) {
	b := Encode(someDocument())
	for n := range b {
		if _, err := Decode(b[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are accepted", n, len(b))
		}
		for bit := 0; bit < 8; bit++ {
			damaged := bytes.Clone(b)
			damaged[n] ^= 1 << bit
			if _, err := Decode(damaged); err == nil {
				t.Errorf("bit %d of byte %d: the damage is not noticed", bit, n)
			}
		}
	}
}

// A checksum that is right does not make a document valid.
func TestDocumentWithImpossibleCountsIsRefused(t *testing.T) {
	with := func(change func(*Document)) []byte {
		d := someDocument()
		change(d)
		return Encode(d)
	}
	sealed := func(b []byte) []byte {
		return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	}
	body := func(change func([]byte)) []byte {
		b := Encode(someDocument())
		b = b[:len(b)-4]
		change(b)
		return sealed(b)
	}
	for _, c := range []struct {
		why  string
		b    []byte
		want string
	}{
		{"an end at its start", with(func(d *Document) { d.Counts[1].Slot.End = d.Counts[1].Slot.Start }), "slot 2 is out of range"},
		{"a negative time", with(func(d *Document) { d.Counts[0].Slot.Start = -1 }), "slot 1 is out of range"},
		{"a block that ends before it begins", with(func(d *Document) { d.Marks[0].Until = 3 }), "mark 1 is out of range"},
		{"more slots than bytes", body(func(b []byte) { b[head-5] = 200 }), "it claims 200 slots"},
		{"more marks than bytes", body(func(b []byte) { b[head-1] = 200 }), "it claims 2 slots and 200 marks"},
		{"more counts than bytes", body(func(b []byte) { b[head+27] = 200 }), "it claims 202 counts"},
		{"too many counts", body(func(b []byte) { b[head+24] = 0xff }), "it claims"},
		{"fewer counts than bytes", body(func(b []byte) { b[head+27] = 0 }), "it claims 2 counts"},
		{"a length that is none", body(func(b []byte) { b[lengthAt+3] = 3 }), "it claims to have 3 bytes"},
		{"another version", body(func(b []byte) { b[len(magic)] = '1' }), `its version is "1"; this program reads version 2`},
		{"something behind it", append(Encode(someDocument()), 0), "1 bytes follow it"},
		{"something else", []byte(`{"a": "foreign file"}`), "it is no tally"},
		{"nothing", nil, "it is no tally"},
	} {
		if _, err := Decode(c.b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.why, err, c.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Encode(someDocument()))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= 4 { // so that the checksum keeps nothing away
			b = binary.BigEndian.AppendUint32(bytes.Clone(b[:len(b)-4]), crc32.Checksum(b[:len(b)-4], castagnoli))
		}
		if d, err := Decode(b); err == nil && !bytes.Equal(Encode(d), b) {
			t.Errorf("%x is read as %+v", b, d)
		}
	})
}
