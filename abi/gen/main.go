// Command gen writes include/softnicd_abi.h, the C form of packages abi and abi/ctl:
//
//	go run ./abi/gen            # from the module's root
//	go run ./abi/gen -o FILE    # elsewhere; - is standard output
//
// It reads the packages' source, so that every constant and every struct of theirs is in the header, with an assertion on
// each size and offset. A test runs it and compares.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	out := flag.String("o", filepath.FromSlash("include/softnicd_abi.h"), "the header to write; - is standard output")
	root := flag.String("root", ".", "the module's root")
	flag.Parse()
	if err := run(*root, *out); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(root, out string) error {
	header, err := generate(root)
	if err != nil {
		return err
	}
	if out == "-" {
		_, err = os.Stdout.Write(header)
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	return os.WriteFile(out, header, 0o644)
}
