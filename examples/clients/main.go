// Command clients is a client that keeps to its quota, with package client: go run ./examples/clients http://localhost:8080 [how many requests]
package main

import (
	"crypto/rand"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/client"
)

// api paces requests, and sends again what was rejected.
var api = &http.Client{Transport: &client.Transport{}, Timeout: time.Minute}

// answer is what was answered.
type answer struct {
	status int
	header http.Header
	body   string
}

func send(r *http.Request, err error) (answer, error) {
	if err != nil {
		return answer{}, err
	}
	response, err := api.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(body)}, err
}

// cache has what each URL answered, with an ETag.
type cache map[string]answer

// get returns what a URL answers; with status 304 it is what it answered before.
func (c cache) get(address string) (answer, error) {
	r, err := http.NewRequest(http.MethodGet, address, nil)
	known, has := c[address]
	if has && err == nil {
		r.Header.Set("If-None-Match", known.header.Get("ETag"))
	}
	a, err := send(r, err)
	if has && a.status == http.StatusNotModified {
		known.status = a.status
		return known, err
	}
	if a.status == http.StatusOK && a.header.Get("ETag") != "" {
		c[address] = a
	}
	return a, err
}

// order orders once, however often it is sent, and waits for an answer that comes later.
func order(address, body string) (answer, error) {
	r, err := http.NewRequest(http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Prefer", "respond-async")
	r.Header.Set("Idempotency-Key", rand.Text())
	a, err := send(r, nil)
	if err != nil || a.status != http.StatusAccepted {
		return a, err
	}
	job, err := url.Parse(a.header.Get("Location")) // it is deferred
	for err == nil && a.status == http.StatusAccepted {
		r, err = http.NewRequest(http.MethodGet, r.URL.ResolveReference(job).String()+"/result", nil)
		if err == nil {
			r.Header.Set("Prefer", "wait=30")
		}
		a, err = send(r, err)
	}
	return a, err
}

func main() {
	count := 30
	if len(os.Args) > 2 {
		count, _ = strconv.Atoi(os.Args[2])
	}
	known, cached, rejections := cache{}, 0, 0
	for range count {
		a, err := known.get(os.Args[1] + "/items.json")
		if err != nil {
			log.Fatal(err)
		}
		if a.status == http.StatusNotModified {
			cached++
		} else if a.status == http.StatusTooManyRequests {
			rejections++
		}
	}
	fmt.Printf("%d answers, %d of them from the cache, %d rejections\n", count, cached, rejections)
	for n := 1; n <= 2; n++ {
		a, err := order(os.Args[1]+"/orders", fmt.Sprintf(`{"ticket": %d}`, n))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("order %d: %d %s\n", n, a.status, a.body)
	}
}
