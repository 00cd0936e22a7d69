package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softnic/softnicd/internal/progtest"
)

const root = "../.."

func TestHeaderIsInStep(t *testing.T) {
	want, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, "include", "softnicd_abi.h"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("include/softnicd_abi.h is not what abi says: run go run ./abi/gen")
	}
}

// The compiler checks every size and offset.
func TestHeaderCompiles(t *testing.T) {
	for _, c := range []struct {
		compiler string
		args     []string
	}{
		{"cc", []string{"-std=c11", "-x", "c"}},
		{"c++", []string{"-std=c++17", "-x", "c++"}},
	} {
		t.Run(c.compiler, func(t *testing.T) {
			path := progtest.Need(t, c.compiler)
			// errno.h makes a macro of a name that a field might have.
			unit := "#include <errno.h>\n#include \"softnicd_abi.h\"\nint main(void) { return (int)softnic_send_stride(1, 0) - 64; }\n"
			cmd := exec.Command(path, append(c.args, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", filepath.Join(root, "include"), "-")...)
			cmd.Stdin = bytes.NewBufferString(unit)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"WRID": "wr_id", "FWVer": "fw_ver", "MaxQPInitRDAtom": "max_qp_init_rd_atom", "PKeyIndex": "pkey_index", "RQPSN": "rq_psn",
		"SRQN": "srqn", "MaxSRQWR": "max_srq_wr", "EnSQDAsyncNotify": "en_sqd_async_notify", "DLIDPathBits": "dlid_path_bits",
		"SL": "sl", "Slot": "slot", "GUIDs": "guids", "ListCQsReply": "list_cqs_reply", "PID": "pid", "Errno": "error", "AHPort": "ah_port", "LKey": "lkey", "SigAll": "sig_all",
	} {
		if got := cName("", name); got != want {
			t.Errorf("%s is %s in C, want %s", name, got, want)
		}
	}
	if got := cName("softnic", "MaxSGE"); got != "softnic_max_sge" {
		t.Error(got)
	}
}

func TestRunWritesWhatWasGenerated(t *testing.T) {
	want, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "a", "b", "abi.h")
	if err := run(root, out); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file differs, or %v", err)
	}
	if err := run(root, filepath.Join(out, "c")); err == nil {
		t.Error("a file was taken for a folder")
	}
}

func TestNoSource(t *testing.T) {
	if err := run(t.TempDir(), "-"); err == nil {
		t.Error("there is nothing to make a header of")
	}
}

func TestRunPrints(t *testing.T) {
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	stdout := os.Stdout
	os.Stdout = out
	err = run(root, "-")
	os.Stdout = stdout
	if err != nil {
		t.Fatal(err)
	}
	want, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(out.Name()); err != nil || !bytes.Equal(got, want) {
		t.Errorf("what was printed differs, or %v", err)
	}
}

// What C cannot have, or Go cannot read, is refused by name.
func TestSourceIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"a field without a C form": "package ib\n\ntype SGE struct{ Addr string }\n",
		"no Go":                    "package ib\n\ntype SGE struct{",
	} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "ib"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "ib", "ib.go"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := generate(dir); err == nil || !strings.Contains(err.Error(), "ib") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
