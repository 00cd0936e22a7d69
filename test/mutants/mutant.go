package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mutant is one known bug.
type mutant struct {
	name  string // what is wrong, in a few words
	edits []edit
	// tests are the packages whose tests ought to catch it, the likeliest first. After a space may stand which tests: of
	// packages whose others depend on the machine, since who fails by chance has caught nothing.
	tests []string
	// unseen says why the simulator does not notice it, where that is so by its nature.
	unseen string
}

// edit replaces a text of a file by a wrong one.
type edit struct{ file, old, new string }

// apply returns the mutated files by their names.
func (m *mutant) apply(root string) (map[string]string, error) {
	files := map[string]string{}
	for _, e := range m.edits {
		text, ok := files[e.file]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(e.file)))
			if err != nil {
				return nil, fmt.Errorf("mutant %q: %w", m.name, err)
			}
			text = string(b)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return nil, fmt.Errorf("mutant %q: its text stands %d times in %s, not once: give it the text that is there now\n%s",
				m.name, n, e.file, e.old)
		}
		files[e.file] = strings.Replace(text, e.old, e.new, 1)
	}
	return files, nil
}

// overlay writes the mutated files to a folder, with the list of replacements that go build -overlay wants, and returns the
// name of the list.
func (m *mutant) overlay(root, folder string) (string, error) {
	files, err := m.apply(root)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name, text := range files {
		at := filepath.Join(folder, strings.ReplaceAll(name, "/", "+"))
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(root, filepath.FromSlash(name))] = at
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	at := filepath.Join(folder, "overlay.json")
	return at, os.WriteFile(at, list, 0o644)
}

// mutants returns all of them.
func mutants() (all []mutant) {
	all = append(all, requesterMutants...)
	all = append(all, responderMutants...)
	all = append(all, serviceMutants...)
	all = append(all, lifetimeMutants...)
	return append(all, deviceMutants...)
}
