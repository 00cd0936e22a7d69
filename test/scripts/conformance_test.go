package scripts

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write docs/conformance.md anew")

const conformance = "../../docs/conformance.md"

const conformanceHead = `# What is held to the specification, and where

Written by ` + "`go test ./test/scripts -run TestConformance -update`" + `; do not edit. Each line is one script of ` + "`test/scripts`" + `:
a conversation with the engine of a service, the reliable connection if the chapter says no other, in virtual time. One runs with
` + "`go test ./test/scripts -run 'TestScripts/CHAPTER/NAME'`" + `, blanks in a name written as underscores. IBA is the
InfiniBand Architecture Specification, volume 1; A and a number are its annexes, man: the manual pages of rdma-core.
`

// docs/conformance.md says what the scripts say: by clause, in the order of the specification.
func TestConformance(t *testing.T) {
	var b bytes.Buffer
	b.WriteString(conformanceHead)
	all := 0
	for _, row := range clauses(t) {
		begun := false
		for _, c := range chapters {
			for _, e := range c.events {
				if e.clause != row[0] {
					continue
				}
				if !begun {
					begun = true
					fmt.Fprintf(&b, "\n## %s: %s\n\n| Script | Rule |\n|---|---|\n", row[0], row[1])
				}
				fmt.Fprintf(&b, "| %s/%s | %s |\n", c.name, e.name, e.rule)
				all++
			}
		}
	}
	fmt.Fprintf(&b, "\n%d scripts.\n", all)
	if *update {
		if err := os.WriteFile(conformance, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	old, err := os.ReadFile(conformance)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(old, b.Bytes()) {
		t.Error("docs/conformance.md is out of date: go generate ./test/scripts")
	}
}
