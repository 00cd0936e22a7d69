package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/softnic/softnicd/cq"
	"github.com/softnic/softnicd/internal/progtest"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/verbs"
)

// jsonWords are the names in docs/json.md whose values are one of a few words, and these words in the program.
func jsonWords() map[string][]string {
	words := map[string][]string{
		"status devices.state": {"ACTIVE", "DOWN"},
		"cq reclaim":           {string(reclaimPoll), string(reclaimCompletion)},
		"perf service":         {"rc", "uc", "ud", "xrc"},
	}
	for _, p := range nic.Profiles() {
		words["status devices.profile"] = append(words["status devices.profile"], p.Name)
	}
	for a := verbs.ArmState(0); a <= verbs.ArmedSolicited; a++ {
		words["cq armed"] = append(words["cq armed"], a.String())
	}
	for _, v := range []cq.Verdict{cq.TooSmall, cq.TooLarge, cq.Fits} {
		words["cq advice.verdict"] = append(words["cq advice.verdict"], v.String())
	}
	for k := verbs.DaemonAsync; k <= verbs.DaemonDraining; k++ {
		words["events kind"] = append(words["events kind"], k.String())
	}
	words["events kind"] = append(words["events kind"], verbs.DaemonLost.String())
	return words
}

var quoted = regexp.MustCompile("`([^`]+)`")

// docs/json.md names all words that there are, and no other is printed.
func TestJSONWords(t *testing.T) {
	page, err := os.ReadFile("../../docs/json.md")
	check(t, err)
	words := jsonWords()
	command := ""
	left := len(words)
	for line := range strings.Lines(string(page)) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			command = strings.TrimSpace(name)
		}
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		key := command + " " + strings.Trim(cells[1], " `")
		want, ok := words[key]
		if !ok {
			continue
		}
		left--
		var got []string
		for _, m := range quoted.FindAllStringSubmatch(cells[3], -1) {
			got = append(got, m[1])
		}
		if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Errorf("docs/json.md has the words %q for %s, the program %q", got, key, want)
		}
	}
	if left != 0 {
		t.Errorf("%d names of %v are not on the page", left, words)
	}

	socket := serveCQs(t)
	attach(t, socket, "hard", 64)
	printed := map[string][]byte{"events": []byte(eventOf(t, socket))}
	for _, command := range []string{"status", "cq"} {
		var out progtest.Buffer
		check(t, softnicdRun(t.Context(), &out, command, "--socket", socket, "-o", "json"))
		printed[command] = []byte(out.String())
	}
	for _, service := range words["perf service"] {
		c := exec.Command("/proc/self/exe", "perf", "send-lat", "--service", service, "--local=device", "--udp-port", "14797", "--iters=10", "-o", "json")
		c.Env = append(os.Environ(), beSoftnicd+"=1")
		out, err := c.Output()
		check(t, err)
		if want := `"service":"` + service + `"`; !bytes.Contains(out, []byte(want)) {
			t.Errorf("no %s in %s", want, out)
		}
		printed["perf"] = append(printed["perf"], out...)
	}
	for command, text := range printed {
		for d := json.NewDecoder(bytes.NewReader(text)); d.More(); {
			var v any
			check(t, d.Decode(&v))
			holdWords(t, words, command+" ", v)
		}
	}
}

// holdWords checks every value in v, whose name is key, against the words that it may be.
func holdWords(t *testing.T, words map[string][]string, key string, v any) {
	t.Helper()
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			holdWords(t, words, key, e)
		}
	case map[string]any:
		for name, e := range v {
			if !strings.HasSuffix(key, " ") {
				name = "." + name
			}
			holdWords(t, words, key+name, e)
		}
	case string:
		if w, ok := words[key]; ok && !slices.Contains(w, v) {
			t.Errorf("%s is %q", key, v)
		}
	}
}
