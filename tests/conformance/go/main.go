// Command kafka-go-client is franz-go, an unmodified Kafka client, made usable from tests: it produces, consumes and
// administers, and prints what the library told it as one JSON object a line. See README.md for its flags.
//
// Exit codes: 0 where all went well, 1 where the library surfaced an error to the application (it was printed as an
// event "error"), 2 where the program was called wrongly or could not begin.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sort"
	"syscall"
)

const (
	exitErrorSurfaced = 1
	exitUsage         = 2
)

// A mode gets the rest of the command line and says whether any error surfaced; the error it returns is one of usage.
type mode struct {
	run     func(ctx context.Context, arguments []string, out *printer) error
	purpose string
}

var modes = map[string]mode{
	"produce": {produce, "send records from standard input, or numbers at a rate for a duration"},
	"consume": {consume, "print records, of a group or of one partition"},
	"admin":   {administer, "one request of an Admin client"},
}

func main() {
	if len(os.Args) < 2 || modes[os.Args[1]].run == nil {
		usage()
		os.Exit(exitUsage)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	out := newPrinter(os.Stdout)
	err := modes[os.Args[1]].run(ctx, os.Args[2:], out)
	out.flush()
	if err != nil && err != flag.ErrHelp {
		fmt.Fprintln(os.Stderr, "kafka-go-client:", err)
		os.Exit(exitUsage)
	}
	if out.errors() > 0 {
		os.Exit(exitErrorSurfaced)
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: kafka-go-client MODE [flags]; kafka-go-client MODE -help lists the flags of a mode")
	names := make([]string, 0, len(modes))
	for name := range modes {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Fprintf(os.Stderr, "  %-8s %s\n", name, modes[name].purpose)
	}
}
