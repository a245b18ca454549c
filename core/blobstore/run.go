package blobstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// Run reads at once, and then reads and writes at the store's intervals until ctx ends. Then it writes a last time. The first times are random, so that
// instances that start together do not all use the storage at the same time.
func (s *Store) Run(ctx context.Context) {
	s.round(ctx, func(ctx context.Context) { s.Read(ctx) })
	read, write := time.NewTimer(jittered(s.config.ReadEvery)), time.NewTimer(jittered(s.config.WriteEvery))
	defer read.Stop()
	defer write.Stop()
	sweep := time.NewTicker(time.Minute)
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			s.round(context.WithoutCancel(ctx), func(ctx context.Context) { _ = s.Write(ctx) })
			return
		case <-sweep.C:
			s.Memory().Sweep() // keys that are unused again
		case <-read.C:
			s.round(ctx, func(ctx context.Context) { s.Read(ctx) })
			read.Reset(s.config.ReadEvery)
		case <-write.C:
			s.round(ctx, func(ctx context.Context) { _ = s.Write(ctx) }) // it has told of what is wrong
			write.Reset(s.config.WriteEvery)
		}
	}
}

// round does f within the patience. A defect in a storage, or here, does not end the process. If f does not end long after that, it tells so: neither reading
// nor writing goes on then.
func (s *Store) round(ctx context.Context, f func(context.Context)) {
	long := s.config.Patience * 3 / 2
	stuck := time.AfterFunc(long, func() {
		s.stats.stuck.Store(true)
		s.report(fmt.Errorf("the storage has not answered for %s, and does not heed that it shall give up", long))
	})
	defer func() {
		stuck.Stop()
		s.stats.stuck.Store(false)
		if p := recover(); p != nil {
			s.report(fmt.Errorf("the storage has panicked: %v", p))
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, s.config.Patience)
	defer cancel()
	f(ctx)
}

// steady is a storage whose panics are errors, so that one blob keeps no other from being read.
type steady struct{ Storage }

func panicked(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("the storage has panicked: %v", p)
	}
}

func (s steady) Store(ctx context.Context, name string, blob []byte) (err error) {
	defer panicked(&err)
	return s.Storage.Store(ctx, name, blob)
}

func (s steady) Load(ctx context.Context, name string) (blob []byte, err error) {
	defer panicked(&err)
	return s.Storage.Load(ctx, name)
}

func (s steady) Delete(ctx context.Context, name string) (err error) {
	defer panicked(&err)
	return s.Storage.Delete(ctx, name)
}

func (s steady) List(ctx context.Context, folder string, recursive bool) (names []string, err error) {
	defer panicked(&err)
	return s.Storage.List(ctx, folder, recursive)
}

func jittered(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
