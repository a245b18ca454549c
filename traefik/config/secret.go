package config

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"os"
	"strings"
)

// resolve replaces the value of a setting that refers to another place: env:NAME to the environment, file:PATH to a file, both
// without the last line break, which a command or an editor may have added. Errors say where it looked, and quote nothing of the contents.
func resolve(field string, value *string) error {
	kind, where, found := strings.Cut(*value, ":")
	if !found || kind != "env" && kind != "file" {
		return nil
	}
	if where == "" {
		return fmt.Errorf("%s %q: must have a name behind the colon", field, *value)
	}
	if kind == "env" {
		text, set := os.LookupEnv(where)
		if !set {
			return fmt.Errorf("%s %q: there is no environment variable of that name", field, *value)
		}
		*value = withoutLineBreak(text)
		return nil
	}
	contents, err := readFile(where)
	if err != nil {
		return fmt.Errorf("%s %q: %w", field, *value, err)
	}
	*value = withoutLineBreak(string(contents))
	return nil
}

func withoutLineBreak(text string) string {
	return strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
}

// largestFile is the most that is read of a file: more than any secret or chain of certificates has.
const largestFile = 1 << 20

// readFile returns the contents of a regular file, or of one that a link points to. It refuses devices and pipes, which may have no end.
func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if failed, ok := err.(*os.PathError); ok {
		failed.Op = "open" // which is what it is for
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("is not a regular file")
	}
	if info.Size() > largestFile {
		return nil, fmt.Errorf("has %d bytes; a secret or a certificate has at most %d", info.Size(), largestFile)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	contents, err := io.ReadAll(io.LimitReader(file, largestFile))
	_ = file.Close() // it was only read
	return contents, err
}

// certificates are files in PEM, or their contents if inline allows that.
type certificates struct {
	ca, cert, key string
	inline        bool
}

// loadTLS completes a configuration with certificates, and returns their contents too. The names are those of the settings.
func loadTLS(config *tls.Config, ca, cert, key string, c certificates) (*tls.Config, []byte, error) {
	var contents []byte
	if c.ca != "" {
		pem, err := c.read(ca, c.ca)
		if err != nil {
			return nil, nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, nil, fmt.Errorf("%s: has no certificate in PEM", ca)
		}
		contents = append(contents, pem...)
	}
	if (c.cert == "") != (c.key == "") {
		return nil, nil, fmt.Errorf("%s and %s: need each other", cert, key)
	}
	if c.cert == "" {
		return config, contents, nil
	}
	certPEM, err := c.read(cert, c.cert)
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err := c.read(key, c.key)
	if err != nil {
		return nil, nil, err
	}
	certificate, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", cert, err)
	}
	config.Certificates = []tls.Certificate{certificate}
	contents = append(contents, certPEM...)
	contents = append(contents, keyPEM...)
	return config, contents, nil
}

// read returns the contents of a file, or the text itself if it is no file and may be PEM.
func (c certificates) read(field, text string) ([]byte, error) {
	pem, err := readFile(text)
	if err == nil {
		return pem, nil
	}
	if c.inline {
		if strings.Contains(text, "-----BEGIN ") {
			return []byte(text), nil
		}
		return nil, fmt.Errorf("%s: is neither a file that can be read nor PEM", field) // and may be a secret
	}
	return nil, fmt.Errorf("%s: %w", field, err)
}
