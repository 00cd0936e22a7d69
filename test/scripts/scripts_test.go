package scripts

import (
	"encoding/csv"
	"os"
	"testing"
)

// event is one protocol event and the script that shows it.
type event struct {
	name   string // as people in the field call it
	clause string // of the specification: one of testdata/clauses.tsv
	rule   string // what the clause asks for, as an implementer reads it
	play   func(*script)
}

// chapter is a file of scripts.
type chapter struct {
	name   string
	events []event
}

var chapters = []chapter{
	{"numbers", numbers},
	{"segments", segmentation},
	{"headers", headers},
	{"requests", requests},
	{"acks", acks},
	{"naks", naks},
	{"reads", reads},
	{"retry", retry},
	{"rnr", notReady},
	{"sequence", sequence},
	{"operations", operations},
	{"lengths", lengths},
	{"access", rights},
	{"duplicates", duplicates},
	{"windows", windows},
	{"states", states},
	{"uc", unreliableConnection},
	{"ud", datagrams},
	{"xrc", extended},
}

func TestScripts(t *testing.T) {
	for _, c := range chapters {
		t.Run(c.name, func(t *testing.T) {
			for _, e := range c.events {
				t.Run(e.name, func(t *testing.T) {
					s := newScript(t)
					e.play(s)
					s.finish()
				})
			}
		})
	}
}

// Names are unique, or nobody could run one; and there are as many scripts as were promised.
func TestNames(t *testing.T) {
	all := 0
	for _, c := range chapters {
		seen := make(map[string]bool)
		for _, e := range c.events {
			if seen[e.name] || e.name == "" || e.rule == "" {
				t.Errorf("%s: %q is there twice, or says nothing", c.name, e.name)
			}
			seen[e.name] = true
			all++
		}
	}
	if all < 150 {
		t.Errorf("%d scripts, want at least 150", all)
	}
}

// The specification is cited where we know what it says there.
func TestCitations(t *testing.T) {
	known := make(map[string]bool)
	for _, row := range clauses(t) {
		known[row[0]] = true
	}
	for _, c := range chapters {
		for _, e := range c.events {
			if !known[e.clause] {
				t.Errorf("%s, %s: cites %q, which is not in testdata/clauses.tsv", c.name, e.name, e.clause)
			}
		}
	}
}

// clauses are the clauses that may be cited, and what each is about.
func clauses(t *testing.T) [][]string {
	t.Helper()
	f, err := os.Open("testdata/clauses.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.Comma = '\t'
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return rows
}
