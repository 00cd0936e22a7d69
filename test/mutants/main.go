package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
)

func main() {
	seeds := flag.Int("seeds", 1000, "how many seeds the simulator has for each mutant")
	both := flag.Bool("both", false, "let the simulator try also what a test has caught")
	only := flag.String("only", "", "try the mutants whose name this expression finds")
	page := flag.String("o", "", "write the table of all mutants as a page to this file, too")
	verbose := flag.Bool("v", false, "print times")
	flag.Parse()
	if *only != "" && *page != "" {
		fmt.Fprintln(os.Stderr, "mutants: the page has all mutants: -o goes without -only")
		os.Exit(2)
	}
	lives, err := run(*seeds, *both, *only, *page, *verbose)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if lives > 0 {
		fmt.Fprintf(os.Stderr, "mutants: nothing catches %d of them\n", lives)
		os.Exit(1)
	}
}

// run tries the mutants, prints the table as it grows, and returns how many live.
func run(seeds int, both bool, only, page string, verbose bool) (lives int, err error) {
	chosen, err := choose(mutants(), only)
	if err != nil {
		return 0, err
	}
	l, err := newLaboratory(seeds, both)
	if err != nil {
		return 0, err
	}
	defer l.close()
	if err := l.sound(chosen); err != nil {
		return 0, err
	}
	var text strings.Builder
	fmt.Fprintf(&text, pageHead, seeds)
	text.WriteString(tableHead)
	fmt.Print(tableHead)
	caught := 0
	for i := range chosen {
		m, begin := &chosen[i], time.Now()
		v, failed := l.try(m)
		if failed != nil {
			err = errors.Join(err, failed) // the others may be in order
			continue
		}
		if v.caught() {
			caught++
		} else {
			lives++
		}
		s := line(m, &v)
		text.WriteString(s)
		fmt.Print(s)
		if verbose {
			fmt.Fprintf(os.Stderr, "%6.1f s  %s\n", time.Since(begin).Seconds(), m.name)
		}
	}
	fmt.Printf("\n%d mutants, %d caught, %d live, %d not tried\n", len(chosen), caught, lives, len(chosen)-caught-lives)
	if page != "" && err == nil {
		err = os.WriteFile(page, []byte(text.String()), 0o644)
	}
	return lives, err
}

// choose returns the mutants whose name an expression finds.
func choose(all []mutant, only string) (chosen []mutant, err error) {
	re, err := regexp.Compile(only)
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		if re.MatchString(m.name) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no mutant is called %q", only)
	}
	return chosen, nil
}
