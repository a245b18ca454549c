package traefik

// Redis says where Redis is, and how to use it. Texts may refer to other places: env:NAME is the environment variable of
// that name, file:PATH is the contents of the file without the last line break.
type Redis struct {
	// Where Redis is: host:port (6379 if the port is left out), the path of a Unix socket, or a URL: redis://, rediss:// for
	// TLS, or unix://. Several are the Sentinels of masterName, or nodes of a cluster.
	Address []string `json:"address,omitempty" yaml:"address,omitempty"`

	// The name of the master that the Sentinels at the addresses monitor.
	MasterName string `json:"masterName,omitempty" yaml:"masterName,omitempty"`

	// Whether the addresses are nodes of a Redis Cluster. The default is false.
	Cluster string `json:"cluster,omitempty" yaml:"cluster,omitempty"`

	// The ACL user. The default is Redis's default user.
	Username string `json:"username,omitempty" yaml:"username,omitempty"`

	// The password.
	Password string `json:"password,omitempty" yaml:"password,omitempty"`

	// The user and password for the Sentinels, if they require any.
	SentinelUsername string `json:"sentinelUsername,omitempty" yaml:"sentinelUsername,omitempty"`
	SentinelPassword string `json:"sentinelPassword,omitempty" yaml:"sentinelPassword,omitempty"`

	// The number of the database. The default is 0, the only one in a Cluster.
	Database string `json:"database,omitempty" yaml:"database,omitempty"`

	// Connects over TLS. An empty object is enough if the system trusts the server's CA.
	TLS interface{} `json:"tls,omitempty" yaml:"tls,omitempty"`

	// The longest that a request waits for a decision: from 1ms to 1m. The default is 50ms.
	Timeout string `json:"timeout,omitempty" yaml:"timeout,omitempty"`

	// The longest that a call of consistency lease or eventual may take, or any that no request waits for: from 1ms to 1m, and not
	// shorter than the timeout. The default is 2s, or the timeout if that is longer.
	BackgroundTimeout string `json:"backgroundTimeout,omitempty" yaml:"backgroundTimeout,omitempty"`

	// How long connecting may take, in the background: from 1ms to 1m. The default is 1s.
	DialTimeout string `json:"dialTimeout,omitempty" yaml:"dialTimeout,omitempty"`

	// After how long without a reply a connection is closed, in the background: from 1ms to 1m, and not shorter than the
	// timeout. The default is 500ms, or the timeout if that is longer.
	ReadTimeout string `json:"readTimeout,omitempty" yaml:"readTimeout,omitempty"`

	// The prefix of the keys in Redis. The default is weir:. All proxies with the same prefix on one Redis share counters.
	Prefix string `json:"prefix,omitempty" yaml:"prefix,omitempty"`

	// Makes the clients' keys in Redis an HMAC, so that nobody who reads Redis can find out addresses by trying all. All nodes
	// must have the same secret.
	KeySecret string `json:"keySecret,omitempty" yaml:"keySecret,omitempty"`

	// Whether the clients' keys in Redis stay readable, instead of being hashed. The default is false.
	PlainKeys string `json:"plainKeys,omitempty" yaml:"plainKeys,omitempty"`

	// How many nodes share the Redis. While it cannot be reached, each allows its share of a limit, with onError local.
	// The default is 1: each allows all of it.
	Nodes string `json:"nodes,omitempty" yaml:"nodes,omitempty"`
}

// ClientTLS configures TLS to Redis, or to an advisor.
type ClientTLS struct {
	// A file with the CA's certificates in PEM. The default is the system's.
	CA string `json:"ca,omitempty" yaml:"ca,omitempty"`

	// Files with the client's certificate and its key in PEM, if the server asks for one.
	ClientCertificate string `json:"clientCertificate,omitempty" yaml:"clientCertificate,omitempty"`
	ClientKey         string `json:"clientKey,omitempty" yaml:"clientKey,omitempty"`

	// The name that the server's certificate must be for. The default is the address's host.
	ServerName string `json:"serverName,omitempty" yaml:"serverName,omitempty"`
}
