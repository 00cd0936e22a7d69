package interop

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/softnic/softnicd/internal/progtest"
)

// all makes the tests run every pair: half an hour, against a minute.
var all = flag.Bool("interop.all", false, "run every program with every option, as make interop does")

// pair is a program that meets itself: a server, and a client that is told where it is.
type pair struct {
	name   string
	server []string // PORT stands for a free TCP port
	client []string
	want   []string // what the client prints, if it did its work
	exec   []string // flags of softnicd exec
	serves bool     // the server never ends by itself
	short  bool     // among the few that are run by default
	limit  time.Duration
}

// same is a pair whose client has the server's arguments and then some.
func same(name string, args []string, more ...string) pair {
	return pair{name: name, server: args, client: slices.Concat(args, more)}
}

// runPairs runs each pair through one daemon and through two.
func runPairs(t *testing.T, pairs []pair) {
	for _, p := range pairs {
		t.Run(p.name, func(t *testing.T) {
			if !*all && !p.short {
				t.Skip("make interop runs it")
			}
			progtest.Need(t, p.server[0])
			d, err := daemons()
			if err != nil {
				t.Fatal(err)
			}
			t.Run("one", func(t *testing.T) { p.run(t, d[0], d[0]) })
			t.Run("two", func(t *testing.T) { p.run(t, d[0], d[1]) })
		})
	}
}

// flags are those of exec.
func (p pair) flags(d *daemon) []string {
	return append([]string{"--socket", d.socket}, p.exec...)
}

func (p pair) run(t *testing.T, a, b *daemon) {
	limit := p.limit
	if limit == 0 {
		limit = 90 * time.Second // of a machine that does much else
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	port := freePort(t)
	fill := func(args []string) []string {
		filled := make([]string, len(args))
		for i, a := range args {
			filled[i] = strings.ReplaceAll(a, "PORT", fmt.Sprint(port))
		}
		return filled
	}
	server := startExec(t, p.flags(a), fill(p.server)...)
	if err := server.listens(ctx, port); err != nil {
		t.Fatal(err)
	}
	client := startExec(t, p.flags(b), fill(p.client)...)
	if err := client.wait(ctx); err != nil {
		t.Fatalf("client: %v", err)
	}
	if !p.serves {
		if err := server.wait(ctx); err != nil {
			t.Fatalf("server: %v", err)
		}
	}
	for _, want := range p.want {
		if !strings.Contains(client.out.String(), want) {
			t.Errorf("the client does not say %q", want)
		}
	}
	// A process that was refused something said so, and nothing has to be refused here.
	for _, q := range []*program{server, client} {
		if strings.Contains(q.out.String(), "softnicd:") {
			t.Errorf("%s was told something by the library", q.args[0])
		}
	}
}
