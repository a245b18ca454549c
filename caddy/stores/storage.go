package stores

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/blobstore"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/core/usage"
)

func init() {
	caddy.RegisterModule(StorageStore{})
}

// StorageStore counts in memory, and tells the counts to other Caddys over a storage module that all of them share, such as a folder. So limits hold
// approximately for a small fleet without Redis: docs/fleet.md has the bound. All handlers with the same settings share one memory, which survives reloads.
//
// While the storage fails, each Caddy counts by itself.
type StorageStore struct {
	// How often the counts of other Caddys are read: from 10ms to 1h; the default is 5s.
	ReadInterval caddy.Duration `json:"read_interval,omitempty"`

	// How often this Caddy's counts are written, if they have changed: from 10ms to 1h; the default is 5s.
	WriteInterval caddy.Duration `json:"write_interval,omitempty"`

	// After how long without a change the counts of another Caddy are deleted, when none of them counts any more: from 1s to 366d; the default is 1h. It is at
	// least three times the write_interval and a read_interval.
	PurgeAge caddy.Duration `json:"purge_age,omitempty"`

	// How many keys the memory holds: from 1 to 100000000; the default is 1000000.
	MaxKeys int `json:"max_keys,omitempty"`

	// The storage module. The default is Caddy's own storage, which the global option `storage` sets.
	StorageRaw json.RawMessage `json:"storage,omitempty" caddy:"namespace=caddy.storage inline_key=module"`

	shared  *SharedStorage
	key     string
	storage certmagic.Storage
}

// CaddyModule returns the Caddy module information.
func (StorageStore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.rate_limit.stores.storage",
		New: func() caddy.Module { return new(StorageStore) },
	}
}

// storageFolder is the folder of the blobs in the storage.
const storageFolder = "rate_limit/weir"

// Provision acquires the memory for these settings.
func (s *StorageStore) Provision(ctx caddy.Context) error {
	if err := syntax.CheckFields(s.Settings()); err != nil {
		return err
	}
	if s.MaxKeys < 0 || s.MaxKeys > MaxMaxKeys {
		return fmt.Errorf("max_keys %d: must be from 1 to %d", s.MaxKeys, MaxMaxKeys)
	}
	storage, name, err := s.load(ctx)
	if err != nil {
		return err
	}
	config := blobstore.Config{
		Folder:     storageFolder,
		ReadEvery:  cmp.Or(time.Duration(s.ReadInterval), blobstore.DefaultInterval),
		WriteEvery: cmp.Or(time.Duration(s.WriteInterval), blobstore.DefaultInterval),
		PurgeAge:   cmp.Or(time.Duration(s.PurgeAge), blobstore.DefaultPurgeAge),
		MaxKeys:    cmp.Or(s.MaxKeys, memory.DefaultMaxKeys),
	}
	key := fmt.Sprintf("%s %s %s %s %d", name, config.ReadEvery, config.WriteEvery, config.PurgeAge, config.MaxKeys)
	value, _, err := storageStores.LoadOrNew(key, func() (caddy.Destructor, error) { return newSharedStorage(config, name) })
	if err != nil {
		return err
	}
	s.shared, s.key, s.storage = value.(*SharedStorage), key, storage
	s.shared.users.add(s)
	s.shared.start()
	return nil
}

// load returns the storage, and a name that is equal for configurations of the same storage. Logs and metrics have the name, so no settings are in it: they
// can have passwords. Caddy's own storage has a name even if its module gives it none, so that a store over it survives reloads.
func (s *StorageStore) load(ctx caddy.Context) (storage certmagic.Storage, name string, err error) {
	if s.StorageRaw == nil {
		storage = ctx.Storage()
		if named, is := storage.(fmt.Stringer); is {
			return storage, named.String(), nil
		}
		return storage, fmt.Sprintf("Caddy's own (%T)", storage), nil
	}
	mod, err := ctx.LoadModule(s, "StorageRaw")
	if err != nil {
		return nil, "", fmt.Errorf("storage: %w", err)
	}
	converter, is := mod.(caddy.StorageConverter)
	if !is {
		return nil, "", fmt.Errorf("storage: the module %T is no storage", mod)
	}
	if storage, err = converter.CertMagicStorage(); err != nil {
		return nil, "", fmt.Errorf("storage: %w", err)
	}
	if named, is := storage.(fmt.Stringer); is {
		return storage, named.String(), nil
	}
	settings := sha256.Sum256(s.StorageRaw)
	return storage, fmt.Sprintf("%s (%x)", caddy.GetModuleName(mod), settings[:4]), nil
}

// Store implements StoreModule.
func (s *StorageStore) Store() core.Store { return s.shared.Store }

// Cleanup releases the memory.
func (s *StorageStore) Cleanup() error {
	if s.shared == nil {
		return nil
	}
	shared := s.shared
	s.shared = nil
	_, err := storageStores.Delete(s.key) // it writes a last time if this was the last user
	shared.users.remove(s)
	return err
}

// storageStores has the stores of all configurations by their settings.
var storageStores = caddy.NewUsagePool()

// SharedStorage is a store that all handlers with the same settings share.
type SharedStorage struct {
	Store *blobstore.Store
	Name  string
	users storageUsers

	begin sync.Once
	stop  context.CancelFunc
	ended chan struct{}
}

func newSharedStorage(config blobstore.Config, name string) (*SharedStorage, error) {
	s := &SharedStorage{Name: name, ended: make(chan struct{})}
	config.Storage = &s.users
	config.Trouble = func(err error) {
		storageLog().Error("the storage fails; until it works, this Caddy counts without what it cannot read or tell", zap.String("storage", name), zap.Error(err))
	}
	config.Purged = func(blob string) {
		storageLog().Info("deleted the counts of a Caddy that is gone", zap.String("storage", name), zap.String("blob", blob))
	}
	var err error
	s.Store, err = blobstore.New(config)
	return s, err
}

// start begins to read and write, when there is a storage.
func (s *SharedStorage) start() {
	s.begin.Do(func() {
		ctx, stop := context.WithCancel(context.Background())
		s.stop = stop
		go func() {
			defer close(s.ended)
			s.Store.Run(ctx)
		}()
	})
}

// lastWrite is how long the end of the last configuration waits for the last write.
const lastWrite = 5 * time.Second

// Destruct implements caddy.Destructor. It writes a last time.
func (s *SharedStorage) Destruct() error {
	if s.stop == nil {
		return nil
	}
	s.stop()
	select {
	case <-s.ended:
	case <-time.After(lastWrite):
	}
	return nil
}

// storageLog returns the logger in force for stores over a storage.
func storageLog() *zap.Logger { return caddy.Log().Named("http.rate_limit.stores.storage") }

// storageUsers is the storage of the newest configuration that uses a store. That of an older one ends with it.
type storageUsers struct {
	mu   sync.Mutex
	list []*StorageStore
}

func (u *storageUsers) add(s *StorageStore) {
	u.mu.Lock()
	u.list = append(u.list, s)
	u.mu.Unlock()
}

func (u *storageUsers) remove(s *StorageStore) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if i := slices.Index(u.list, s); i >= 0 {
		u.list = slices.Delete(u.list, i, i+1)
	}
}

var errNoStorage = errors.New("no configuration uses the storage any more")

func (u *storageUsers) newest() (certmagic.Storage, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.list) == 0 {
		return nil, errNoStorage
	}
	return u.list[len(u.list)-1].storage, nil
}

// Store implements blobstore.Storage.
func (u *storageUsers) Store(ctx context.Context, name string, blob []byte) error {
	s, err := u.newest()
	if err != nil {
		return err
	}
	return s.Store(ctx, name, blob)
}

// Load implements blobstore.Storage.
func (u *storageUsers) Load(ctx context.Context, name string) ([]byte, error) {
	s, err := u.newest()
	if err != nil {
		return nil, err
	}
	if folder, is := s.(*certmagic.FileStorage); is { // a pipe would never end, and a huge file would need as much memory
		info, err := os.Stat(folder.Filename(name))
		if err != nil {
			return nil, err
		}
		if info.Mode().IsRegular() && info.Size() > usage.MaxBytes {
			return nil, fmt.Errorf("it has %d bytes; the counts of a Caddy have at most %d", info.Size(), usage.MaxBytes)
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("it is no regular file: %s", info.Mode())
		}
	}
	return s.Load(ctx, name)
}

// Delete implements blobstore.Storage.
func (u *storageUsers) Delete(ctx context.Context, name string) error {
	s, err := u.newest()
	if err != nil {
		return err
	}
	return s.Delete(ctx, name)
}

// List implements blobstore.Storage.
func (u *storageUsers) List(ctx context.Context, folder string, recursive bool) ([]string, error) {
	s, err := u.newest()
	if err != nil {
		return nil, err
	}
	return s.List(ctx, folder, recursive)
}

// Distributed has the settings of caddy-ratelimit for several Caddys. They mean a StorageStore of this handler.
type Distributed struct {
	// How often the counts of other Caddys are read; the default is 5s.
	ReadInterval caddy.Duration `json:"read_interval,omitempty"`

	// How often this Caddy's counts are written; the default is 5s.
	WriteInterval caddy.Duration `json:"write_interval,omitempty"`

	// After how long without a change the counts of another Caddy are deleted, when none of them counts any more; the default is 1h.
	PurgeAge caddy.Duration `json:"purge_age,omitempty"`
}

// StoreName returns the name of a store in JSON; "" if there is none.
func StoreName(raw json.RawMessage) string {
	var store struct {
		Name string `json:"store"`
	}
	_ = json.Unmarshal(raw, &store)
	return store.Name
}

// AddStorages adds what stores are at. Those over one storage, which differ in their settings, are reported together.
func AddStorages(p *metrics.Page, stores []*SharedStorage) {
	sums := make(map[string]blobstore.Stats)
	for _, s := range stores {
		st := s.Store.Stats()
		st.Add(sums[s.Name])
		sums[s.Name] = st
	}
	for name, st := range sums {
		metrics.Each(p, metrics.StorageInstances, []int64{st.Instances - st.Damaged, st.Damaged}, name)
		metrics.Each(p, metrics.StorageRounds, []int64{st.Written, st.Failed}, name, "write")
		metrics.Add(p, metrics.StorageRounds, float64(st.Read), name, "read", "ok")
		metrics.Add(p, metrics.StorageAge, float64(st.Age)/1e6, name)
		metrics.Add(p, metrics.StorageUntold, float64(st.Untold), name)
		metrics.Add(p, metrics.StorageKeys, float64(st.Keys), name)
	}
}

// Interface guards
var (
	_ StoreModule        = (*StorageStore)(nil)
	_ caddy.Provisioner  = (*StorageStore)(nil)
	_ caddy.CleanerUpper = (*StorageStore)(nil)
	_ caddy.Destructor   = (*SharedStorage)(nil)
)

// UnmarshalJSON reads the store's JSON as strictly as a handler's.
func (s *StorageStore) UnmarshalJSON(data []byte) error {
	type plain StorageStore
	return syntax.UnmarshalStrict(data, (*plain)(s))
}

// UnmarshalJSON reads the settings as strictly as a handler's.
func (x *Distributed) UnmarshalJSON(data []byte) error {
	type plain Distributed
	return syntax.UnmarshalPart("distributed", data, (*plain)(x))
}

// Settings returns the lines of intervals that the store's block may have, which caddy-ratelimit's distributed has, too.
func (s *StorageStore) Settings() []syntax.Setting {
	return []syntax.Setting{
		syntax.DurationTo("read_interval", &s.ReadInterval, "10ms", "1h"),
		syntax.DurationTo("write_interval", &s.WriteInterval, "10ms", "1h"),
		syntax.DurationTo("purge_age", &s.PurgeAge, "1s", "366d"),
	}
}
