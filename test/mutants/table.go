package main

import (
	"fmt"
	"strings"
)

const tableHead = "| mutant | file | caught by the test | by the simulator | after seeds |\n|---|---|---|---|---|\n"

// line is a mutant's line of the table.
func line(m *mutant, v *verdict) string {
	test, sim, seeds := "-", "-", "-"
	switch {
	case v.test != "":
		test = "`" + v.test + "`"
	case !v.caught():
		test = "**it lives**"
	}
	switch {
	case v.sim != "":
		sim, seeds = v.sim, fmt.Sprint(v.seeds)
	case v.seeds > 0:
		sim, seeds = "not seen", fmt.Sprint(v.seeds)
		if m.unseen != "" {
			sim += ": " + m.unseen
		}
	}
	var files []string
	for _, e := range m.edits {
		if f := "`" + e.file + "`"; len(files) == 0 || files[len(files)-1] != f {
			files = append(files, f)
		}
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s |\n", m.name, strings.Join(files, " "), test, sim, seeds)
}

const pageHead = `# Planted bugs, and what catches them

Each line is a bug that was planted in the product on purpose, alone, and the first test or case that failed because of it.
Beside it stands what the simulator said within %d seeds; a dash where it was not asked, since a test had caught the bug. A dash in
the place of a test: those that were asked have not caught it, the simulator has.

    make mutants        # until something has caught each
    make mutants-page   # and what the simulator says to each, into this page

The mutants themselves are in [test/mutants](../test/mutants).

`
