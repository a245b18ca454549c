package blobstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// patience is how long the storage may take for a round of reading or writing.
const patience = 30 * time.Second

// Run reads at once, and then reads and writes at the store's intervals until ctx ends. Then it writes a last time. The first times are random, so that
// instances that start together do not all use the storage at the same time.
func (s *Store) Run(ctx context.Context) {
	s.round(ctx, func(ctx context.Context) { s.Read(ctx) })
	read, write := time.NewTimer(jittered(s.config.ReadEvery)), time.NewTimer(jittered(s.config.WriteEvery))
	defer read.Stop()
	defer write.Stop()
	for {
		select {
		case <-ctx.Done():
			s.round(context.WithoutCancel(ctx), func(ctx context.Context) { _ = s.Write(ctx) })
			return
		case <-read.C:
			s.round(ctx, func(ctx context.Context) { s.Read(ctx) })
			read.Reset(s.config.ReadEvery)
		case <-write.C:
			s.round(ctx, func(ctx context.Context) { _ = s.Write(ctx) }) // it has told of what is wrong
			write.Reset(s.config.WriteEvery)
		}
	}
}

// round does f within patience. A defect in a storage, or here, does not end the process.
func (s *Store) round(ctx context.Context, f func(context.Context)) {
	defer func() {
		if p := recover(); p != nil {
			s.tell(fmt.Errorf("the storage has panicked: %v", p))
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	f(ctx)
}

func jittered(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
