# softnicd's shop. `make test` is the whole proof and what CI runs; the other targets are its parts and the long runs.

GO          ?= go
BIN         := bin/softnicd
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOLANGCI    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

export CGO_ENABLED ?= 1

.PHONY: all build demo test deps lint staticcheck unit cover race sim interop interop-rxe interop-rxe-bench clib sim-long cq-cycles mutants mutants-page bench ratios plots profile microbench fuzz header links rxe-smoke clean

all: build

build: $(BIN)

# One static binary, without cgo.
$(BIN): FORCE
	CGO_ENABLED=0 $(GO) build -trimpath -o $@ ./cmd/softnicd
FORCE:

demo:
	$(GO) run ./cmd/softnicd demo

test: deps build staticcheck unit race sim ratios rxe-smoke
	@$(MAKE) --no-print-directory fuzz FUZZTIME=30s
	@echo "make test: everything passed"

# The packages that the tests use, on Debian and Ubuntu. Elsewhere the tests that miss one skip by name.
deps:
	@scripts/test-deps

lint: staticcheck
	$(GO) run $(GOLANGCI) run ./...

staticcheck:
	@test -z "$$(gofmt -l . | tee /dev/stderr)" || { echo "gofmt would change these files"; exit 1; }
	$(GO) vet ./...
	$(GO) mod tidy -diff
	$(GO) run $(STATICCHECK) ./...

# Everything once as it is: allocation counts and timing are only true without the race detector.
# The packages of cover are not run twice. -count=1: many tests run the binary, whose changes the cache of results does not see.
unit: cover
	$(GO) test -count=1 -timeout 15m $$($(GO) list ./... | grep -vxF "$$(scripts/cover --packages)" | grep -v '/test/interop/rxe/live$$')

# Some operations with Linux's rdma_rxe in a virtual machine, if the harness for it is beside the checkout. An emulated
# processor is slow enough alone.
rxe-smoke:
	$(GO) test -count=1 -timeout 15m ./test/interop/rxe/live

# What the tests of wire, transport, dma, abi, cq and test/scripts run of these packages: 90 % of each at least.
cover:
	@scripts/cover

# And once more under the race detector, which sees rings and regions because tests put them on the heap. By the profile all
# packages would be compiled once more for the one test that is the program's.
race:
	$(GO) test -race -pgo=off -short -timeout 15m ./...

# 20,000 seeds of the simulator, some minutes on two cores. The 2,000 of `unit` are the first of them.
sim:
	$(GO) test ./test/sim -run TestSeeds -sim.seeds=20000 -timeout 20m

# Programs of others under softnicd exec, each with all of its options: many minutes. `unit` has some of each kind.
interop:
	$(GO) test ./test/interop -count=1 -timeout 60m -interop.all

# Linux rxe in a virtual machine, by the harness at ../shared/interop or in $$SOFTNIC_INTEROP: every operation, program and trouble,
# either side asking. Six minutes on a quiet host, half an hour beside other work; `make test` has some of each kind.
interop-rxe:
	$(GO) test ./test/interop/rxe -count=1
	$(GO) test ./test/interop/rxe/live -count=1 -timeout 90m -v -rxe.all

# rxe and softnicd by the same perftest commands inside two such machines, in turns: the table for docs/performance.md, eight
# minutes on a quiet host. It needs root and the harness.
interop-rxe-bench:
	$(GO) run ./test/interop/rxebench

# The C programs of dropin/test as they are, sanitized and under valgrind, with 100,000 registrations; and pyverbs' tests.
clib:
	$(GO) test ./test/clib -count=1 -timeout 20m -v -clib.full

# Ten times as many, others every day.
sim-long:
	$(GO) test ./test/sim -run TestSeeds -sim.seeds=200000 -sim.first=$$(($$(date +%s) / 86400 * 200000)) -timeout 0 -v

# Ten million times arm and sleep, between two processes: some minutes.
cq-cycles:
	$(GO) test ./cq -run TestSleepCycles -cq.cycles=10000000 -timeout 0 -v

# Known bugs planted one at a time: a test or the simulator has to catch each. Some minutes; the page has both columns and
# takes longer.
mutants:
	$(GO) run ./test/mutants

mutants-page:
	$(GO) run ./test/mutants -both -o docs/mutants.md

# Everything that takes a link over each: the tests of package verbs over memory of one device, UDP and packet sockets, on
# loopback addresses, at ::1 and across a cable between namespaces in both families; several hosts; the demo. No root is
# needed where user namespaces are allowed. `make test` has the tests that say what a service does over each of them.
LINKS := local udp raw udp6 raw6 udp-veth4 raw-veth4 udp-veth6 raw-veth6
links:
	for link in $(LINKS); do echo "verbs over $$link"; SOFTNIC_TEST_LINK=$$link $(GO) test -short -count=1 ./verbs || exit 1; done
	for link in local udp raw; do echo "four shards over $$link"; SOFTNIC_TEST_SHARDS=4 SOFTNIC_TEST_LINK=$$link $(GO) test -short -count=1 ./verbs || exit 1; done
	for link in udp raw; do echo "hosts over $$link"; SOFTNIC_TEST_LINK=$$link $(GO) test -count=1 ./test/hosts || exit 1; done
	$(GO) test -count=1 ./link/...
	$(GO) test -count=1 -run 'TestDemo|TestRaw|TestForeign|TestDatagram' ./test/e2e

# What softnicd does beside what the machine does without it; docs/performance.md explains the table.
bench: build
	$(GO) run ./test/bench
	@scripts/bench-calls

# The table's ratios, once and quickly: what falls below half its floor fails. Nothing else runs at the same time.
ratios:
	$(GO) test ./test/bench -run TestRatios -count=1 -ratios

# Throughput and latency against message size, queue pairs, loss and shards: docs/scale-*.svg, and the numbers in docs/scale.json.
plots:
	$(GO) run ./test/bench -scale docs/scale.json
	cd test/plots && $(GO) run . -in ../../docs/scale.json -out ../../docs

# What the compiler inlines the daemon by, from a minute of its work: worth it after its hot code has changed.
profile:
	$(GO) run ./test/bench -length 5s -profile cmd/softnicd/default.pgo

# The Go benchmarks beside the hot code, for benchstat.
microbench:
	$(GO) test -run '^$$' -bench . -benchmem ./wire ./abi ./cq ./dma ./transport/... ./nic ./link/... ./verbs/...

# Each fuzz target for so long; `make test` gives each as much.
FUZZTIME ?= 30s
fuzz:
	@scripts/fuzz $(FUZZTIME)

header:
	$(GO) run ./abi/gen -o include/softnicd_abi.h

clean:
	rm -rf bin
