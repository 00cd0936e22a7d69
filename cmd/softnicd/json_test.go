package main

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/softnic/softnicd/internal/progtest"
	"github.com/softnic/softnicd/verbs"
)

// documented reads docs/json.md: for each command what a name is, in the page's words.
func documented(t *testing.T) map[string]map[string]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/json.md")
	check(t, err)
	all := map[string]map[string]string{}
	command := ""
	for line := range strings.Lines(string(page)) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			command = strings.TrimSpace(name)
			all[command] = map[string]string{}
		}
		if cells := strings.Split(line, "|"); len(cells) > 3 && strings.HasPrefix(cells[1], " `") {
			all[command][strings.Trim(cells[1], " `")] = strings.TrimSpace(cells[2])
		}
	}
	return all
}

// declare notes what the fields of a type are called in JSON, and what they are.
func declare(into map[string]string, prefix string, typ reflect.Type) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			continue
		}
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		is := "number"
		switch inner.Kind() {
		case reflect.String:
			is = "string"
		case reflect.Bool:
			is = "bool"
		case reflect.Map:
			is = "object"
		case reflect.Slice:
			is = "array"
			declare(into, prefix+name+".", inner.Elem())
		case reflect.Struct:
			if is = "object"; inner == reflect.TypeFor[time.Time]() {
				is = "string"
				break
			}
			declare(into, prefix+name+".", inner)
		}
		if option == "omitempty" {
			is += ", maybe"
		}
		into[prefix+name] = is
	}
}

// hold checks a value that was printed against what the page says.
func hold(t *testing.T, page map[string]string, path string, v any) {
	t.Helper()
	is, _, _ := strings.Cut(page[path], ",")
	got := "null"
	switch v := v.(type) {
	case string:
		got = "string"
	case bool:
		got = "bool"
	case float64:
		got = "number"
	case []any:
		got = "array"
		for _, e := range v {
			holdObject(t, page, path+".", e)
		}
	case map[string]any:
		got = "object"
		if path != "devices.counters" { // as many as there are
			holdObject(t, page, path+".", v)
		}
	}
	if got != is {
		t.Errorf("%s is %s, and in docs/json.md %q", path, got, is)
	}
}

func holdObject(t *testing.T, page map[string]string, prefix string, v any) {
	t.Helper()
	o, ok := v.(map[string]any)
	if !ok {
		t.Errorf("%s: %v is no object", prefix, v)
	}
	for name, v := range o {
		hold(t, page, prefix+name, v)
	}
	for path, is := range page {
		if name, ok := strings.CutPrefix(path, prefix); ok && !strings.Contains(name, ".") && !strings.HasSuffix(is, "maybe") && o[name] == nil {
			t.Errorf("%s is not there", path)
		}
	}
}

// docs/json.md says what is printed: every name, and what it is.
func TestJSONPage(t *testing.T) {
	page := documented(t)
	for command, typ := range map[string]reflect.Type{
		"status": reflect.TypeFor[statusReport](), "events": reflect.TypeFor[eventLine](), "cq": reflect.TypeFor[cqRow](),
		"perf": reflect.TypeFor[perfResult](),
	} {
		want := map[string]string{}
		declare(want, "", typ)
		if diff := cmp.Diff(want, page[command]); diff != "" {
			t.Errorf("docs/json.md about %s (-program +page):\n%s", command, diff)
		}
	}

	socket := serveCQs(t)
	attach(t, socket, "hard", 64)
	objects := func(command string, out []byte) {
		t.Helper()
		n := 0
		for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
			var v any
			check(t, d.Decode(&v))
			list, ok := v.([]any)
			if !ok {
				list = []any{v}
			}
			for _, o := range list {
				n++
				holdObject(t, page[command], "", o)
			}
		}
		if n == 0 {
			t.Errorf("%s prints nothing", command)
		}
	}
	for _, command := range []string{"status", "cq"} {
		var out progtest.Buffer
		check(t, softnicdRun(t.Context(), &out, command, "--socket", socket, "-o", "json"))
		objects(command, []byte(out.String()))
	}
	objects("events", []byte(eventOf(t, socket)))

	c := exec.Command("/proc/self/exe", "perf", "send-lat", "--local=device", "--udp-port", "14797", "--iters=100", "-o", "json")
	c.Env = append(os.Environ(), beSoftnicd+"=1")
	out, err := c.Output()
	check(t, err)
	objects("perf", out)

	if got := slices.Sorted(maps.Keys(page)); !slices.Equal(got, []string{"cq", "events", "perf", "status"}) {
		t.Errorf("the page is about %v", got)
	}
}

// eventOf returns what events prints about a context that is opened and closed.
func eventOf(t *testing.T, socket string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out progtest.Buffer
	ended := make(chan error, 1)
	go func() { ended <- softnicdRun(ctx, &out, "events", "--socket", socket, "-o", "json") }()
	for end := time.Now().Add(10 * time.Second); !strings.Contains(out.String(), "closed"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("nothing came: %q", out.String())
		}
		c, err := verbs.Open("soft", verbs.WithSocket(socket))
		check(t, err)
		check(t, c.Close())
	}
	cancel()
	check(t, <-ended)
	return out.String()
}
