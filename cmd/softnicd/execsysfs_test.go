package main

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/softnic/softnicd/verbs"
)

// The tree reads as the kernel's does.
func TestSysfsFormats(t *testing.T) {
	socket := sysfsDaemon(t)
	root := filepath.Join(t.TempDir(), "sys")
	tree, err := newSysfs(root, socket, true)
	check(t, err)
	defer tree.stop()
	for name, want := range map[string]string{
		"node_type":                           "1: CA",
		"node_guid":                           "????:????:????:????",
		"hw_rev":                              "0x*",
		"device/vendor":                       "0x????",
		"device/device":                       "0x????",
		"device/class":                        "0x020700",
		"ports/1/state":                       "4: ACTIVE",
		"ports/1/phys_state":                  "5: LinkUp",
		"ports/1/rate":                        "100 Gb/sec (4X EDR)",
		"ports/1/lid":                         "0x102", // of 127.3.1.2
		"ports/1/sm_lid":                      "0x0",
		"ports/1/lid_mask_count":              "0",
		"ports/1/cap_mask":                    "0x????????",
		"ports/1/pkeys/0":                     "0x8001",
		"ports/1/pkeys/1":                     "0x0007",
		"ports/1/gids/0":                      "0000:0000:0000:0000:0000:ffff:7f03:0102",
		"ports/1/gid_attrs/types/0":           "RoCE v2",
		"ports/1/gid_attrs/ndevs/0":           "lo",
		"ports/1/counters/port_xmit_discards": "0",
		"ports/1/counters/link_downed":        "0",
		"ports/1/hw_counters/objects_qp":      "0",
	} {
		text, err := os.ReadFile(filepath.Join(root, "class/infiniband/first", name))
		if ok, _ := filepath.Match(want+"\n", string(text)); err != nil || !ok {
			t.Errorf("%s: %q, want %q (%v)", name, text, want, err)
		}
	}
	plain, err := newSysfs(filepath.Join(t.TempDir(), "sys"), socket, false)
	check(t, err)
	defer plain.stop()
	if text, _ := os.ReadFile(filepath.Join(plain.root, "class/infiniband/first/ports/1/lid")); string(text) != "0x0\n" {
		t.Errorf("without --lids it is %q", text)
	}
}

// Refreshing opens no device, leaves no file beside those of the tree, and says what has changed.
func TestSysfsRefresh(t *testing.T) {
	socket := sysfsDaemon(t)
	root := filepath.Join(t.TempDir(), "sys")
	tree, err := newSysfs(root, socket, false)
	check(t, err)
	tree.stop()
	c, err := verbs.Open("second", verbs.WithSocket(socket))
	check(t, err)
	defer c.Close()
	_, err = c.AllocPD()
	check(t, err)

	follow, err := verbs.Follow(verbs.WithSocket(socket))
	check(t, err)
	defer follow.Close()
	for range 3 {
		check(t, tree.refresh())
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if events, err := follow.Next(short); err == nil {
		t.Errorf("the daemon tells %+v", events)
	}
	if text, _ := os.ReadFile(filepath.Join(root, "class/infiniband/second/ports/1/hw_counters/objects_pd")); string(text) != "1\n" {
		t.Errorf("protection domains: %q", text)
	}
	check(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if name := d.Name(); err == nil && (strings.HasSuffix(name, "~") || strings.HasPrefix(name, ".")) {
			t.Errorf("%s is left", path)
		}
		return err
	}))
}

// sysfsDaemon starts a daemon with two devices, and returns its socket.
func sysfsDaemon(t *testing.T) string {
	t.Helper()
	t.Setenv(beSoftnicd, "1")
	socket := filepath.Join(t.TempDir(), "s")
	p, err := startRun(t.Context(), socket, "--device", "first=127.3.1.2", "--device", "second=127.3.1.3", "--port", "14798",
		"--pkey", "0x8001", "--pkey", "0x7", "--log-level", "warn")
	check(t, err)
	t.Cleanup(p.kill)
	return socket
}
