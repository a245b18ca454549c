// Command cascade plays how one failure becomes two: of two clusters behind a load balancer one fails, and the other gets more than it can do. It
// runs on one machine, five times at once: without a limit, with a static limit, with Weir's guard, without and with
// a ceiling, and with that ceiling alone. README.md tells the story.
//
//	go run ./examples/cascade                 a minute; data and picture come into a new folder, whose name is printed
//	go run ./examples/cascade -write FOLDER   into this folder; a README.md there gets the table
//	go run ./examples/cascade -draw FOLDER    nothing is run: picture and table are made anew from the folder's data
//
// The program plays clients and clusters itself. Load balancers are processes of the same binary, which is also a Caddy with Weir.
package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/proxyweir/weir/caddy"
)

// A protection is what the load balancer does: the name of a snippet of the Caddyfile, and what picture and table call it.
type protection struct{ snippet, title string }

var protections = []protection{
	{"no-limit", "without a limit"},
	{"static-limit", "with a static limit"},
	{"guard", "with the guard"},
	{"guard-max", "with the guard, max 60"},
	{"cap", "with a cap of 60 alone"},
}

// A story says how many workers a cluster has, and in which seconds of a run B fails, B is back, and all ends.
type story struct{ workers, fails, back, ends int }

// whole is the story of the picture.
var whole = story{workers: 10, fails: 15, back: 35, ends: 55}

// capacity is how many requests a second one cluster can do.
func (s story) capacity() int { return capacityOf(s.workers) }

// rate is how many clients begin: more than one cluster can do, and less than two.
func (s story) rate() float64 { return 1.2 * float64(s.capacity()) }

// tooLate is by how much a request may begin later than it should, or be on its way to a cluster. Where it is more, the machine was too busy, and a
// run says nothing.
const tooLate = 250 * time.Millisecond

//go:embed Caddyfile
var caddyfile []byte

func main() {
	if balance(os.Args[1:]) {
		return
	}
	write := flag.String("write", "", "write data, picture and the table of README.md into this `folder`")
	draw := flag.String("draw", "", "run nothing, and make picture and table from the data in this `folder`")
	flag.Parse()
	if err := run(*write, *draw); err != nil {
		fmt.Fprintln(os.Stderr, "cascade:", err)
		os.Exit(1)
	}
}

// balance is Caddy, if the arguments say so, and reports whether they do: in a process that this program has started, and that ends with it, since
// then its standard input does.
func balance(args []string) bool {
	if len(args) == 0 || args[0] != "caddy" {
		return false
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	os.Args = args
	caddycmd.Main()
	return true
}

// run is the command: it writes data into a folder, which may be "" for a new one, or reads those of another, and makes the rest of them.
func run(write, draw string) error {
	folder := draw
	if draw == "" {
		if _, err := os.Stat(write); write != "" && err != nil {
			return err
		}
		folder = write
		if folder == "" {
			var err error
			if folder, err = os.MkdirTemp("", "cascade"); err != nil {
				return err
			}
		}
		fmt.Printf("This takes %d seconds: B fails after %d, and is back after %d.\n\n", whole.ends, whole.fails, whole.back)
		rows, late, err := runAll(whole, seed)
		if err != nil {
			return err
		}
		if late > tooLate {
			busy := fmt.Sprintf("this machine was too busy: it kept requests waiting for up to %d ms. Run it again when less else is running", late.Milliseconds())
			if write != "" {
				return errors.New(busy + "; nothing was written")
			}
			fmt.Println("But " + busy + ".\n")
		}
		if err := os.WriteFile(filepath.Join(folder, dataFile), format(rows), 0o644); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(filepath.Join(folder, dataFile))
	if err != nil {
		return err
	}
	rows, err := parse(text)
	if err != nil {
		return err
	}
	fmt.Print(table(whole, rows))
	picture := filepath.Join(folder, pictureFile)
	if err := os.WriteFile(picture, drawing(whole, rows), 0o644); err != nil {
		return err
	}
	fmt.Println("\nThe picture is", picture)
	readme := filepath.Join(folder, "README.md")
	page, err := os.ReadFile(readme)
	if os.IsNotExist(err) {
		return nil
	} else if err != nil {
		return err
	}
	return os.WriteFile(readme, withTable(page, table(whole, rows)), 0o644)
}

// runAll runs a story with each protection, all at once. It returns the rows of each, in the order of protections, and for how long this machine
// has kept a request waiting at most. Clients do the same in all.
func runAll(s story, seed uint64) (rows [][]row, late time.Duration, err error) {
	at, err := freeAddresses(3 * len(protections))
	if err != nil {
		return nil, 0, err
	}
	home, err := os.MkdirTemp("", "cascade-caddy")
	if err != nil {
		return nil, 0, err
	}
	defer os.RemoveAll(home)
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	defer signal.Stop(interrupted)
	go func() {
		<-interrupted
		os.RemoveAll(home)
		os.Exit(130) // as shells have it; the load balancers end with it
	}()
	tallies, errs := make([]*tally, len(protections)), make([]error, len(protections))
	var running sync.WaitGroup
	for i := range protections {
		running.Go(func() { tallies[i], errs[i] = runOne(s, protections[i], at[3*i:3*i+3], seed, home) })
	}
	running.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w", protections[i].title, err)
		}
		rows, late = append(rows, tallies[i].rows), max(late, tallies[i].latest())
	}
	return rows, late, nil
}

// runOne starts two clusters and a load balancer at those addresses, whose files are in a folder of home, has clients send to it, and meanwhile ends B and starts it again.
func runOne(s story, p protection, at []string, seed uint64, home string) (*tally, error) {
	t := newTally(s.ends)
	a, err := startCluster(at[0], s.workers, t)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	b, err := startCluster(at[1], s.workers, t)
	if err != nil {
		return nil, err
	}
	defer func() { b.Close() }()
	stop, err := startBalancer(filepath.Join(home, p.snippet), at[2],
		"A="+at[0], "B="+at[1], "BALANCER="+at[2], "PROTECTION="+p.snippet, fmt.Sprint("CAPACITY=", s.capacity()), fmt.Sprint("MAX=", s.capacity()*6/10))
	if err != nil {
		return nil, err
	}
	defer stop()

	t.begun = time.Now()
	sent := make(chan struct{})
	go func() { send("http://"+at[2], s.rate(), seed, t); close(sent) }()
	time.Sleep(time.Until(t.begun.Add(time.Duration(s.fails) * time.Second)))
	b.Close() // at once: connections are cut, and what it was working on is lost
	time.Sleep(time.Until(t.begun.Add(time.Duration(s.back) * time.Second)))
	again, err := startCluster(at[1], s.workers, t)
	if err != nil {
		return nil, err
	}
	b = again
	<-sent
	return t, nil
}

// startBalancer starts Caddy by the Caddyfile, with that folder for its files and that environment, and returns when it accepts connections at the address. What it logs is printed.
func startBalancer(home, address string, environment ...string) (stop func(), err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(home, 0o700); err != nil {
		return nil, err
	}
	config := filepath.Join(home, "Caddyfile")
	c := exec.Command(program, "caddy", "run", "--config", config, "--adapter", "caddyfile")
	c.Env = append(append(os.Environ(), environment...), "HOME="+home, "XDG_DATA_HOME="+home, "XDG_CONFIG_HOME="+home)
	c.Stderr = os.Stderr
	stop = func() {
		if c.Process != nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}
	if err = os.WriteFile(config, caddyfile, 0o600); err == nil {
		_, err = c.StdinPipe() // which is open for as long as this program runs
	}
	if err == nil {
		err = c.Start()
	}
	for range 600 {
		if err != nil {
			break
		}
		if connection, refused := net.Dial("tcp", address); refused == nil {
			connection.Close()
			return stop, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	stop()
	if err == nil {
		err = fmt.Errorf("caddy does not listen on %s after 30 seconds", address)
	}
	return nil, err
}

// freeAddresses returns addresses on which nobody listens. Their ports are below those that connections are made from, which might take B's while it
// is down.
func freeAddresses(n int) ([]string, error) {
	var list []string
	for range 1000 {
		address := fmt.Sprint("127.0.0.1:", 20000+rand.IntN(10000))
		listener, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		defer listener.Close()
		if list = append(list, address); len(list) == n {
			return list, nil
		}
	}
	return nil, errors.New("no port between 20000 and 30000 is free")
}
