// An OCI registry for tests: the reference implementation, in memory, on a loopback port that the kernel chooses. It
// prints its address as its first line, and ends when its standard input is closed.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/distribution/distribution/v3/configuration"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory"
	"github.com/sirupsen/logrus"
)

const options = `
version: 0.1
log: { level: error, accesslog: { disabled: true } }
storage:
  inmemory: {}
  delete: { enabled: true }
`

func main() {
	text := options
	// The path of a file with users and hashes of their passwords.
	if len(os.Args) > 1 {
		text += fmt.Sprintf("auth: { htpasswd: { realm: tests, path: %q } }\n", os.Args[1])
	}
	config, err := configuration.Parse(strings.NewReader(text))
	exitOn(err)
	config.HTTP.Secret = "of a registry that ends with its test"
	// Two lines for each request would hide what a test reports.
	logrus.SetOutput(io.Discard)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	exitOn(err)
	app := handlers.NewApp(context.Background(), config)
	fmt.Println(listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	exitOn(http.Serve(listener, app))
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "registry:", err)
		os.Exit(1)
	}
}
