package traefik

// SourceCriterion says what tells clients apart, in the words of Traefik's RateLimit: one of its fields. The default is an
// empty ipStrategy.
type SourceCriterion struct {
	// The client's address.
	IPStrategy interface{} `json:"ipStrategy,omitempty" yaml:"ipStrategy,omitempty"`

	// The value of this header field.
	RequestHeaderName string `json:"requestHeaderName,omitempty" yaml:"requestHeaderName,omitempty"`

	// Whether it is the host that the request is for.
	RequestHost string `json:"requestHost,omitempty" yaml:"requestHost,omitempty"`
}

// RateLimitRedis says where Redis is, in the words of Traefik's RateLimit.
type RateLimitRedis struct {
	// The server's host:port. The default is localhost:6379. Several are nodes of a Redis Cluster.
	Endpoints []string `json:"endpoints,omitempty" yaml:"endpoints,omitempty"`

	// Connects over TLS.
	TLS interface{} `json:"tls,omitempty" yaml:"tls,omitempty"`

	// The ACL user.
	Username string `json:"username,omitempty" yaml:"username,omitempty"`

	// The password.
	Password string `json:"password,omitempty" yaml:"password,omitempty"`

	// The number of the database. The default is 0.
	DB string `json:"db,omitempty" yaml:"db,omitempty"`

	// These have no effect: all requests travel over one connection.
	PoolSize       string `json:"poolSize,omitempty" yaml:"poolSize,omitempty"`
	MinIdleConns   string `json:"minIdleConns,omitempty" yaml:"minIdleConns,omitempty"`
	MaxActiveConns string `json:"maxActiveConns,omitempty" yaml:"maxActiveConns,omitempty"`

	// How long a request waits for a decision: the longer of the two. The default is 50ms.
	ReadTimeout  string `json:"readTimeout,omitempty" yaml:"readTimeout,omitempty"`
	WriteTimeout string `json:"writeTimeout,omitempty" yaml:"writeTimeout,omitempty"`

	// How long connecting may take, in the background. The default is 1s.
	DialTimeout string `json:"dialTimeout,omitempty" yaml:"dialTimeout,omitempty"`
}

// RateLimitTLS configures TLS to Redis, in the words of Traefik's RateLimit. Certificates and key are files, or
// their contents.
type RateLimitTLS struct {
	// The CA's certificates. The default is the system's.
	CA string `json:"ca,omitempty" yaml:"ca,omitempty"`

	// The client's certificate and its key.
	Cert string `json:"cert,omitempty" yaml:"cert,omitempty"`
	Key  string `json:"key,omitempty" yaml:"key,omitempty"`

	// Whether the server's certificate is not verified.
	InsecureSkipVerify string `json:"insecureSkipVerify,omitempty" yaml:"insecureSkipVerify,omitempty"`
}
