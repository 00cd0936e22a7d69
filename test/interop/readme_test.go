package interop

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softnic/softnicd/internal/progtest"
)

// The commands of the README's section on programs are run as they stand there.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## Run your program\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, block, _ := strings.Cut(section, "```sh\n")
	block, _, ok := strings.Cut(block, "```")
	if !ok {
		t.Fatal("the README has no commands under Run your program")
	}
	says := map[string]string{"ibv_devinfo": "hca_id:", "ib_write_bw": "BW average", "ibv_rc_pingpong": "iters in", "ucx_info": "rc_verbs"}
	seen := 0
	for line := range strings.Lines(block) {
		for program, want := range says {
			if !strings.Contains(line, program) {
				continue
			}
			seen++
			t.Run(program, func(t *testing.T) {
				progtest.Need(t, program)
				got := command(t, []string{"PATH=" + filepath.Dir(softnicd) + ":" + os.Getenv("PATH")}, "sh", "-c", line)
				if got.code != 0 || !strings.Contains(got.stdout, want) {
					t.Errorf("%s: %+v", strings.TrimSpace(line), got)
				}
			})
		}
	}
	if seen != len(says) {
		t.Errorf("%d commands were run, want %d", seen, len(says))
	}
}
