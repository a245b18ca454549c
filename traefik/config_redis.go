package traefik

// Redis says where Redis is, and how it is used. Texts may be taken from elsewhere: env:NAME is the environment variable of
// that name, file:PATH is what the file has in it, without its last line break.
type Redis struct {
	// Where Redis is: host:port (6379 if the port is left out), the path of a Unix socket, or a URL: redis://, rediss:// for
	// TLS, or unix://.
	Address []string `json:"address,omitempty" yaml:"address,omitempty"`

	// The ACL user. The default is Redis's default user.
	Username string `json:"username,omitempty" yaml:"username,omitempty"`

	// The password.
	Password string `json:"password,omitempty" yaml:"password,omitempty"`

	// The number of the database. The default is 0.
	Database string `json:"database,omitempty" yaml:"database,omitempty"`

	// Connects over TLS. An empty one is enough where the system knows the server's CA.
	TLS interface{} `json:"tls,omitempty" yaml:"tls,omitempty"`

	// The longest that a request waits for a decision: from 1ms to 1m. The default is 50ms.
	Timeout string `json:"timeout,omitempty" yaml:"timeout,omitempty"`

	// How long connecting may take, in the background: from 1ms to 1m. The default is 1s.
	DialTimeout string `json:"dialTimeout,omitempty" yaml:"dialTimeout,omitempty"`

	// After how long without a reply a connection is given up, in the background: from 1ms to 1m, and not shorter than the
	// timeout. The default is 500ms, or the timeout if that is longer.
	ReadTimeout string `json:"readTimeout,omitempty" yaml:"readTimeout,omitempty"`

	// What the keys in Redis begin with. The default is weir:. All who share a prefix on one Redis share counters.
	Prefix string `json:"prefix,omitempty" yaml:"prefix,omitempty"`

	// Makes the clients' keys in Redis an HMAC, so that who reads Redis cannot find out addresses by trying all. All nodes
	// must have the same.
	KeySecret string `json:"keySecret,omitempty" yaml:"keySecret,omitempty"`

	// Whether the clients' keys in Redis stay readable, instead of being hashed. The default is false.
	PlainKeys string `json:"plainKeys,omitempty" yaml:"plainKeys,omitempty"`

	// How many nodes share the Redis. While it cannot be reached, each lets its part of a limit through, for onError local.
	// The default is 1: each lets all of it through.
	Nodes string `json:"nodes,omitempty" yaml:"nodes,omitempty"`
}

// RedisTLS says how TLS is spoken with Redis.
type RedisTLS struct {
	// A file with the CA's certificates in PEM. The default is the system's.
	CA string `json:"ca,omitempty" yaml:"ca,omitempty"`

	// Files with the client's certificate and its key in PEM, where the server asks for one.
	ClientCertificate string `json:"clientCertificate,omitempty" yaml:"clientCertificate,omitempty"`
	ClientKey         string `json:"clientKey,omitempty" yaml:"clientKey,omitempty"`

	// The name that the server's certificate must be for. The default is the address's host.
	ServerName string `json:"serverName,omitempty" yaml:"serverName,omitempty"`
}
