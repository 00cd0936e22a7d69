package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/softnic/softnicd/internal/dropin"
	"github.com/softnic/softnicd/verbs"
)

func newLibs() *cobra.Command {
	var dir, socket string
	var env bool
	c := &cobra.Command{
		Use:   "libs",
		Short: "The libraries that unmodified programs load: compile them, or print what to set",
		Long: `Compiles libibverbs.so.1 and its companions, which the binary carries as C sources, and prints the folder. Without --dir
that is a folder of the user's cache, where softnicd exec finds them; with it they can be packaged: a program that was
installed as PREFIX/bin/softnicd finds them in PREFIX/lib/softnicd, and SOFTNICD_LIBS names any other place. There no
compiler is needed.

softnicd exec sets for one command what --print-env prints for a shell:
    eval "$(softnicd libs --print-env)"`,
		RunE: func(c *cobra.Command, _ []string) error {
			libs, err := findLibs(c.Context(), dir)
			if err != nil {
				return err
			}
			if env {
				printEnv(c.OutOrStdout(), libs, socket)
				return nil
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), libs.Dir)
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&dir, "dir", "", "compile into this folder")
	f.BoolVar(&env, "print-env", false, "print LD_LIBRARY_PATH, LD_PRELOAD and SOFTNICD_SOCKET as exports for a shell")
	f.StringVar(&socket, "socket", "", "with --print-env: the daemon's control socket")
	return c
}

// findLibs compiles the libraries into dir, or without one finds them.
func findLibs(ctx context.Context, dir string) (*dropin.Libraries, error) {
	if dir == "" {
		return dropin.Find(ctx)
	}
	return dropin.Build(ctx, dir)
}

func printEnv(out io.Writer, libs *dropin.Libraries, socket string) {
	if socket == "" {
		socket = verbs.SocketPath()
	}
	values := libs.Variables(os.Environ(), false)
	values[dropin.EnvSocket] = socket
	for _, name := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(out, "export %s=%s\n", name, shellQuote(values[name]))
	}
}

// shellQuote makes one word of a POSIX shell out of s.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
