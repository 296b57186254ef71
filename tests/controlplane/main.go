// A Kubernetes control plane, its simulated nodes and kubectl as one program,
// so that one build and one link contain everything the test suites need.
//
// The program to be is the name it is called by (a link named kubectl is
// kubectl), or else its first argument. A server ends when its standard input
// does: it never outlives the tests that started it, however those end.
// Certificates, ports and flags are the harness's affair.
package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	kwoksignals "sigs.k8s.io/kwok/pkg/utils/signals"
)

var programs = map[string]func() int{
	"etcd": server(func() int {
		etcdmain.Main(os.Args)
		return 0
	}),
	"kube-apiserver":          server(func() int { return cli.Run(apiserver.NewAPIServerCommand()) }),
	"kube-controller-manager": server(func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) }),
	"kube-scheduler":          server(func() int { return cli.Run(scheduler.NewSchedulerCommand()) }),
	"kwok":                    server(runKwok),
	"kubectl":                 runKubectl,
	"new-signing-key":         newSigningKey,
}

func main() {
	program, known := programs[filepath.Base(os.Args[0])]
	if !known && len(os.Args) > 1 {
		program, known = programs[os.Args[1]]
		os.Args = os.Args[1:]
	}
	if !known {
		names := slices.Sorted(maps.Keys(programs))
		fmt.Fprintf(os.Stderr, "the first argument is one of: %s\n", strings.Join(names, ", "))
		os.Exit(2)
	}
	os.Exit(program())
}

func server(run func() int) func() int {
	return func() int {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(1)
		}()
		return run()
	}
}

// forgetGlobalFlags removes what the imported servers put on the global set of
// flags, which cobra lends to every command: kwok and kubectl have their own.
func forgetGlobalFlags() {
	pflag.CommandLine = pflag.NewFlagSet(os.Args[0], pflag.ExitOnError)
}

func runKubectl() int {
	forgetGlobalFlags()
	return cli.Run(kubectl.NewDefaultKubectlCommand())
}

// runKwok does what sigs.k8s.io/kwok/cmd/kwok does, which is a main package and
// cannot be imported: logging, then the files of Stages, then the command.
func runKwok() int {
	forgetGlobalFlags()
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}

	ctx, logger := kwoklog.InitFlags(kwoksignals.SetupSignalContext(), flags)
	ctx, err := kwokconfig.InitFlags(ctx, flags)
	if err == nil {
		command := kwok.NewCommand(ctx)
		command.PersistentFlags().AddFlagSet(flags)
		err = command.ExecuteContext(ctx)
	}
	if err != nil {
		logger.Error("kwok ended", "err", err)
		return 1
	}
	return 0
}

// newSigningKey prints the private key that ServiceAccount tokens are signed with.
func newSigningKey() int {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err == nil {
		block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
		err = pem.Encode(os.Stdout, block)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
