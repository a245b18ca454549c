package usage

import "sync"

// Others is what other instances have told, by their names. The zero value knows none. It is safe for concurrent use.
type Others struct {
	mu     sync.Mutex
	books  map[string]book
	serial int64 // of the last document that was learnt from
}

// News is what is new in what others tell.
type News struct {
	Counts   []Counts // what others have admitted that was not known before; a slot may occur several times
	Marks    []Mark   // perhaps known before
	Troubles []error  // what could not be read, each once until its trouble ends or changes
	Purged   []string // names of the blobs that were deleted
}

// Learn takes over a document of the instance with that name, and adds what is new in it to the news. Slots that are over are left out.
//
// An interpreted program pays for each key, so the loop over them is flat.
func (o *Others) Learn(name string, d *Document, now int64, news *News) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.books == nil {
		o.books = make(map[string]book)
	}
	o.serial++
	b := o.books[name]
	if b == nil {
		b = make(book)
		o.books[name] = b
	}
	for i := range d.Counts {
		c := &d.Counts[i]
		if c.Slot.End <= now {
			continue
		}
		known := b[c.Slot]
		if known == nil {
			known = make(map[uint64]uint32, len(c.Keys))
			b[c.Slot] = known
		}
		keys := make([]uint64, 0, len(c.Keys))
		more := make([]uint32, 0, len(c.Keys))
		of := c.Units
		var before uint32
		for n, key := range c.Keys {
			before = known[key]
			if of[n] > before {
				known[key] = of[n]
				keys = append(keys, key)
				more = append(more, of[n]-before)
			}
		}
		if len(keys) > 0 {
			news.Counts = append(news.Counts, Counts{Slot: c.Slot, Keys: keys, Units: more, Serial: o.serial})
		}
	}
	for _, m := range d.Marks {
		if m.End > now {
			news.Marks = append(news.Marks, m)
		}
	}
}

// Drop forgets the slots that are over. It returns the names of instances of which nothing is left.
func (o *Others) Drop(now int64) []string {
	var ended []string
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, b := range o.books {
		b.drop(now)
		if len(b) == 0 {
			delete(o.books, name)
			ended = append(ended, name)
		}
	}
	return ended
}

// Knows reports whether something of an instance counts. The slots that are over were forgotten by Drop.
func (o *Others) Knows(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.books[name]) > 0
}

// Of adds what others have told of a key under a rule to counts by slots. What it adds is also in the news with the serial that it returns, or a smaller one.
func (o *Others) Of(rule, key uint64, to map[Slot]int64) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, b := range o.books {
		gather(b, rule, key, to)
	}
	return o.serial
}
