// Unary echoes of 1 KiB over one HTTP/2 connection without TLS: load ADDRESS IN_FLIGHT SECONDS.
// Each call has the nine headers of RocketMQ's clients, of which three change. Prints calls a second.
package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const size = 1024

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func call(client *http.Client, url string, number uint64, body []byte) error {
	request, err := http.NewRequest("POST", url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	at := time.Now().UTC().Add(time.Duration(number) * time.Second).Format("20060102T150405Z")
	header := request.Header
	header.Set("content-type", "application/grpc")
	header.Set("te", "trailers")
	header.Set("user-agent", "grpc-go/1.70.0")
	header.Set("grpc-timeout", "3000m")
	header.Set("x-mq-language", "GO")
	header.Set("x-mq-protocol", "v2")
	header.Set("x-mq-client-version", "5.1.4")
	header.Set("x-mq-date-time", at)
	header.Set("x-mq-request-id", fmt.Sprintf("%08x-7f1c-4a4b-9d2e-%012x", number*2654435761%4294967296, number))
	header.Set("x-mq-client-id", "worker-17@4711@0@1q2w3e4r")
	header.Set("x-mq-namespace", "shop")
	header.Set("x-mq-session-token", "token-of-the-session")
	header.Set("authorization", fmt.Sprintf(
		"MQv2-HMAC-SHA1 Credential=accessKey/, SignedHeaders=x-mq-date-time, Signature=%040x", number*11400714819323198485))
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	answer, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil {
		return err
	}
	if status := response.Trailer.Get("grpc-status"); status != "0" || len(answer) != size+5 {
		return fmt.Errorf("status %q, %d bytes", status, len(answer))
	}
	return nil
}

func main() {
	address := os.Args[1]
	inFlight, err := strconv.Atoi(os.Args[2])
	check(err)
	seconds, err := strconv.ParseFloat(os.Args[3], 64)
	check(err)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols, DisableCompression: true}}
	body := make([]byte, size+5)
	binary.BigEndian.PutUint32(body[1:], size)
	url := "http://" + address + "/bench/echo"
	check(call(client, url, 0, body))
	var done, number atomic.Uint64
	var wait sync.WaitGroup
	begun := time.Now()
	end := begun.Add(time.Duration(seconds * float64(time.Second)))
	for range inFlight {
		wait.Go(func() {
			for time.Now().Before(end) {
				check(call(client, url, number.Add(1), body))
				done.Add(1)
			}
		})
	}
	wait.Wait()
	fmt.Printf("%.0f\n", float64(done.Load())/time.Since(begun).Seconds())
}
