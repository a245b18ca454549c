// Command layers measures what it costs to turn a client away: at the kernel, with a new connection, with a TLS handshake, and in HTTP. The CPU time is that of
// Caddy's process alone, or, of packets, that of sending them to nftables, which drops them. It runs on Linux only, and of packets as root with nft. Run it in the bench
// module's folder.
package main

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/proxyweir/weir/bench/cputime"
)

func main() {
	length := flag.Duration("time", 5*time.Second, "how long to measure each row")
	packets := flag.Bool("packets", false, "used by itself: in a network of its own, send packets that are dropped")
	flag.Parse()
	log.SetFlags(0)
	if *packets {
		if err := dropPackets(*length); err != nil {
			log.Fatal(err)
		}
		return
	}
	fmt.Println("| turned away | CPU of the server, µs | a second and core |\n| --- | ---: | ---: |")
	itself, err := os.Executable()
	if err != nil {
		log.Fatal(err)
	}
	alone := exec.Command(itself, "-packets", "-time", length.String())
	alone.Stdout, alone.Stderr, alone.SysProcAttr = os.Stdout, os.Stderr, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err = alone.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "no row of packets, which takes root and nft:", err)
	}
	work, err := os.MkdirTemp("", "layers")
	if err != nil {
		log.Fatal(err)
	}
	err = requests(work, *length)
	os.RemoveAll(work)
	if err != nil {
		log.Fatal(err)
	}
}

func row(name string, each time.Duration) {
	fmt.Printf("| %s | %.1f | %.0f |\n", name, float64(each)/float64(time.Microsecond), float64(time.Second)/float64(each))
}

// requests has a Caddy reject requests that come in several ways.
func requests(work string, length time.Duration) error {
	build := exec.Command("go", "build", "-o", work, "./cmd/weir")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("building Caddy (run this in the bench module's folder): %w", err)
	}
	ecdsaKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	limit := "{\nrate_limit 1/366d\nrespond ok\n}\n"
	config := "{\nadmin off\nauto_https off\npersist_config off\nlog {\noutput discard\n}\n}\nhttp://127.0.0.1:18180 " + limit
	for name, key := range map[string]crypto.Signer{"ecdsa": ecdsaKey, "rsa": rsaKey} {
		if err = writeCertificate(filepath.Join(work, name), key); err != nil {
			return err
		}
		port := map[string]string{"ecdsa": "18181", "rsa": "18182"}[name]
		config += fmt.Sprintf("https://127.0.0.1:%s {\ntls %[2]s.crt %[2]s.key\n%[3]s", port, filepath.Join(work, name), strings.TrimPrefix(limit, "{\n"))
	}
	file := filepath.Join(work, "Caddyfile")
	if err = os.WriteFile(file, []byte(config), 0o600); err != nil {
		return err
	}
	caddy := exec.Command(filepath.Join(work, "weir"), "run", "--config", file, "--adapter", "caddyfile")
	caddy.Stderr = os.Stderr
	if err = caddy.Start(); err != nil {
		return err
	}
	defer func() {
		_ = caddy.Process.Kill()
		_ = caddy.Wait()
	}()
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if answer, err := http.Get("http://127.0.0.1:18180"); err == nil {
			answer.Body.Close()
			break
		} else if time.Since(begun) > 10*time.Second {
			return err
		}
	}
	for _, way := range []struct {
		name, url     string
		kept, resumed bool
	}{
		{"a request of a kept connection", "http://127.0.0.1:18180", true, false},
		{"a request of a kept connection with TLS", "https://127.0.0.1:18181", true, false},
		{"a connection with one request", "http://127.0.0.1:18180", false, false},
		{"a connection with TLS that is resumed, and one request", "https://127.0.0.1:18181", false, true},
		{"a connection with TLS (ECDSA P-256), and one request", "https://127.0.0.1:18181", false, false},
		{"a connection with TLS (RSA 2048), and one request", "https://127.0.0.1:18182", false, false},
	} {
		before, err := cputime.Of(caddy.Process.Pid)
		if err != nil {
			return err
		}
		times, err := ask(way.url, way.kept, way.resumed, length)
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		after, err := cputime.Of(caddy.Process.Pid)
		if err != nil {
			return err
		}
		row(way.name, (after-before)/time.Duration(times))
	}
	return nil
}

// ask sends requests for a while, all of which but the first are rejected, and returns how many.
func ask(url string, kept, resumed bool, length time.Duration) (int64, error) {
	var times atomic.Int64
	var failed error
	var all sync.WaitGroup
	until := time.Now().Add(length)
	for range 8 {
		all.Go(func() {
			config := &tls.Config{InsecureSkipVerify: true} // its own certificate
			if resumed {
				config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
			}
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: !kept, TLSClientConfig: config}}
			for time.Now().Before(until) {
				answer, err := client.Get(url)
				if err != nil {
					failed = err
					return
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
				times.Add(1)
			}
		})
	}
	all.Wait()
	return times.Load(), failed
}

func writeCertificate(path string, key crypto.Signer) error {
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().AddDate(1, 0, 0), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(path+".crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), 0o600),
		os.WriteFile(path+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
}

// dropPackets sends packets for a while from an address that nftables drops, one of 10,000 in a set.
func dropPackets(length time.Duration) error {
	control, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	loopback, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	loopback.SetUint16(unix.IFF_UP)
	if err = unix.IoctlIfreq(control, unix.SIOCSIFFLAGS, loopback); err != nil {
		return err
	}
	rules := new(strings.Builder)
	rules.WriteString("table inet t {\nset s {\ntype ipv4_addr\nelements = { 127.0.0.2")
	for i := range 9999 {
		fmt.Fprintf(rules, ", 198.18.%d.%d", i/250, i%250)
	}
	rules.WriteString(" }\n}\nchain c {\ntype filter hook input priority -1\nip saddr @s drop\n}\n}\n")
	nft := exec.Command("nft", "-f", "-")
	nft.Stdin, nft.Stderr = strings.NewReader(rules.String()), os.Stderr
	if err = nft.Run(); err != nil {
		return err
	}
	from := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	conn, err := from.DialContext(context.Background(), "udp", "127.0.0.1:80")
	if err != nil {
		return err
	}
	before, times := used(), 0
	for begun := time.Now(); time.Since(begun) < length; {
		for range 1000 {
			if _, err = conn.Write(make([]byte, 20)); err != nil {
				return err
			}
			times++
		}
	}
	row("a packet, dropped by nftables (with the sending of it)", (used()-before)/time.Duration(times))
	return nil
}

// used returns the CPU time of this process.
func used() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
