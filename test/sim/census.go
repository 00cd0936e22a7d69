package sim

import (
	"fmt"
	"slices"
	"strings"
)

// census counts what happened in runs, since a simulation in which nothing happens proves little.
type census map[string]int

func (c census) add(other census) {
	for name, n := range other {
		c[name] += n
	}
}

// expected is what thousands of seeds are sure to bring about.
func expected() (names []string) {
	for i := range operations {
		names = append(names, operations[i].op.String())
	}
	return append(names, "unreliable queue pairs that were drained", "changes of unreliable queue pairs in SQD",
		"unreliable queue pairs that were reset", "unreliable requests that a reset has taken", "partitions", "pauses", "refusing ports", "failing ports", "forged packets", "replayed packets",
		"uses of a window", "binds of a window", "connections that broke", "linearizable histories", "mad applications",
		"memory faults that were met", "queues that overran", "device crashes", "rewritten headers",
		"shared receives", "limits of shared receive queues",
		"UC SEND received", "UC SEND_WITH_IMM received", "UC RDMA_WRITE", "UC RDMA_WRITE_WITH_IMM received",
		"queue pairs that were drained", "changes in SQD", "resized queues", "entries that were moved",
		"connections that were reset", "connections that were revived", "requests that a reset has taken", "renewed keys",
		"regions registered again", "regions that windows are bound to",
		"datagrams to a group received",
		"XRC SEND", "XRC SEND_WITH_IMM", "XRC RDMA_WRITE", "XRC RDMA_WRITE_WITH_IMM", "XRC RDMA_READ",
		"XRC ATOMIC_CMP_AND_SWP", "XRC ATOMIC_FETCH_AND_ADD", "XRC ATOMIC_WRITE", "XRC FLUSH", "messages for a target's sibling",
		"UD SEND received", "UD SEND_WITH_IMM received",
		"unreliable messages that were lost", "unreliable messages received again", "runs that were sent", "runs that came")
}

// missing returns what is expected and never happened.
func (c census) missing() (names []string) {
	for _, name := range expected() {
		if c[name] == 0 {
			names = append(names, name)
		}
	}
	return names
}

func (c census) String() string {
	var list []string
	for name, n := range c {
		list = append(list, fmt.Sprintf("%d %s", n, name))
	}
	slices.SortFunc(list, func(x, y string) int {
		return strings.Compare(x[strings.Index(x, " ")+1:], y[strings.Index(y, " ")+1:])
	})
	return strings.Join(list, ", ")
}
