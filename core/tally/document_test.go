package tally

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"reflect"
	"strings"
	"testing"
)

func someDocument() *document {
	return &document{instance: Instance{1, 2}, sequence: 7, counts: []Count{
		{Slot{Key{1}, 0, 1}, 1},
		{Slot{Key{1}, 1_700_000_000_000_000, 1_700_000_060_000_000}, 300},
		{Slot{Key{2}, 5, 9}, MaxUnits},
	}}
}

func TestDocumentIsReadAsItWasWritten(t *testing.T) {
	for _, d := range []*document{someDocument(), {counts: []Count{}}} {
		got, err := decode(d.encode())
		if err != nil || !reflect.DeepEqual(got, d) {
			t.Errorf("%+v: %+v, %v", d, got, err)
		}
	}
}

func TestDocumentThatIsCutOffOrDamagedIsRefused(t *testing.T) {
	b := someDocument().encode()
	for n := range b {
		if _, err := decode(b[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are accepted", n, len(b))
		}
		for bit := range 8 {
			damaged := bytes.Clone(b)
			damaged[n] ^= 1 << bit
			if _, err := decode(damaged); err == nil {
				t.Errorf("bit %d of byte %d: the damage is not noticed", bit, n)
			}
		}
	}
}

// A checksum that is right does not make a document valid.
func TestDocumentWithImpossibleCountsIsRefused(t *testing.T) {
	with := func(change func(*document)) []byte {
		d := someDocument()
		change(d)
		return d.encode()
	}
	sealed := func(b []byte) []byte {
		return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	}
	body := func(change func([]byte)) []byte {
		b := someDocument().encode()
		b = b[:len(b)-4]
		change(b)
		return sealed(b)
	}
	for _, c := range []struct {
		why  string
		b    []byte
		want string
	}{
		{"no units", with(func(d *document) { d.counts[0].Units = 0 }), "count 1 is out of range"},
		{"too many units", with(func(d *document) { d.counts[2].Units++ }), "count 3 is out of range"},
		{"an end before its start", with(func(d *document) { d.counts[2].End = 4 }), "count 3 has an invalid number"},
		{"an end at its start", with(func(d *document) { d.counts[2].End = 5 }), "count 3 is out of range"},
		{"an end past the range", with(func(d *document) { d.counts[2].Start, d.counts[2].End = 1<<63-1, -2 }), "count 3 is out of range"},
		{"a slot twice", with(func(d *document) { d.counts[1] = d.counts[0] }), "count 2 is out of order"},
		{"more counts than bytes", body(func(b []byte) { b[head-1] = 200 }), "it claims 200 counts"},
		{"too many counts", body(func(b []byte) { b[head-4] = 0xff }), "it claims"},
		{"fewer counts than bytes", body(func(b []byte) { b[head-1] = 1 }), "bytes follow its counts"},
		{"a later version", body(func(b []byte) { b[len(magic)] = '2' }), `its version is "2"; this program reads version 1`},
		{"something else", []byte(`{"a": "foreign file"}`), "it is no tally"},
		{"nothing", nil, "it is no tally"},
	} {
		if _, err := decode(c.b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.why, err, c.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(someDocument().encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= 4 { // so that the checksum keeps nothing away
			b = binary.BigEndian.AppendUint32(bytes.Clone(b[:len(b)-4]), crc32.Checksum(b[:len(b)-4], castagnoli))
		}
		if d, err := decode(b); err == nil && !bytes.Equal(d.encode(), b) {
			t.Errorf("%x is read as %+v", b, d)
		}
	})
}
