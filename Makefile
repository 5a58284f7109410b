# Two commands set everything up: `make demo` needs Go alone; `make test` installs what the tests need.
GO      ?= go
BIN     := bin/tallywheel
export CGO_ENABLED ?= 0

# The Go command fetches the toolchain that go.mod asks for, where it may.
.PHONY: build demo test check bench golden fuzz arm cross deps clean

build:
	$(GO) build -trimpath -o $(BIN) ./cmd/tallywheel

demo: build
	./$(BIN) demo --for 30s --ports 8

# Tests that go by chance, and where they are: with the race detector they play few of their rounds (testenv.Rounds), and all of
# them once more without it, which takes a tenth of the time. Some can say nothing with it, and skip. `go test .` holds both lists
# to what there is.
CHANCE    := TestScenarios|TestSpillModel|TestDifferential.*|TestLeanDifferential|TestModel|TestManyDeaths|TestEither.*DieAtAnyStep|TestEcho|TestAnyNetwork|TestChurn|TestAHijackedStreamIsWhole|TestGarbageOfARequest|TestStacksTell|TestNoVerdictTellsEqualsApart|TestTruths
CHANCE_IN := ./recorder ./server ./seglog ./asyncfile ./uring ./ipc ./internal/spool ./server/internal/loop ./server/internal/h1 ./lab ./lab/experiments/pool

# All tests. Programs that the tests need come through apt and pip where that is allowed; what is missing after that is said by the
# tests themselves: they fail where TALLYWHEEL_REQUIRE is set, which deps decides.
test: deps deps-board
	$(GO) vet ./...
	$(GO) test . # the house rules first: they are quick
	CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 TALLYWHEEL_REQUIRE="$$(cat .deps 2>/dev/null)" $(GO) test -race -timeout 30m ./server ./recorder ./seglog ./... # the longest first, or they are left alone at the end
	TALLYWHEEL_REQUIRE="$$(cat .deps 2>/dev/null)" $(GO) test -timeout 30m -run '^($(CHANCE))$$' $(CHANCE_IN)
	$(MAKE) --no-print-directory cross arm peers

deps:
	@./deploy/test-deps.sh

# Debian's kernels, an emulator to boot them in, and a C compiler for ARMv7, for lab board and the tests with real drivers: fetched once.
.PHONY: deps-board
deps-board:
	@./deploy/board-deps.sh || echo "missing: an emulator, a compiler for ARMv7, or Debian's kernels: lab board and the tests with real drivers lack them"

# The peers that the laboratory measures are modules of their own, with a hundred others behind each. Where those cannot be fetched,
# also the second time, that is no fault of a change; all else is. The OpenTelemetry collector takes minutes to build, and its
# versions are pinned: PEERS='go otelcol' has it, too.
PEERS     ?= go
UNFETCHED := dial tcp|lookup .* on |no such host|i/o timeout|connection re|unexpected EOF|handshake|Gateway|Unavailable|Too Many|lookup disabled
.PHONY: peers
peers:
	@for peer in $(PEERS); do ( cd lab/contestants/$$peer && list='$(GO) list -e -deps -f {{.Error}} ./...'; \
	if $$list 2>&1 | grep -qE '$(UNFETCHED)' && $$list 2>&1 | grep -E '$(UNFETCHED)' | head -3; then \
		echo "SKIPPED: the peers of the laboratory: their modules cannot be fetched"; \
	else $(GO) vet ./... && $(GO) test ./...; fi ) || exit 1; done

# Every target builds static, and what is pure builds anywhere. The recorder, and what stands on it, is for Linux alone: it reads, and isolates, by
# calls of its own. Package reader has its types anywhere, which a configuration names.
cross:
	GOOS=linux GOARCH=arm64 $(GO) build -o /dev/null ./cmd/tallywheel
	GOOS=linux GOARCH=arm GOARM=7 $(GO) build -o /dev/null ./cmd/tallywheel
	GOOS=darwin GOARCH=arm64 $(GO) vet ./crc16 ./admission ./frame/... ./ledger ./asyncfile ./seglog ./archive ./reader ./config ./server ./prefork ./rt ./internal/...
	GOOS=windows GOARCH=amd64 $(GO) vet ./crc16 ./admission ./frame/... ./ledger ./asyncfile ./serial ./seglog ./archive ./reader ./config ./server ./prefork ./rt ./internal/...

# The tests of what differs on a 32-bit ARM, under qemu-user. Those that are left out go through
# thousands of damaged logs, which takes minutes there, run themselves as another user, or look at
# pages that the kernel maps ahead, which qemu-user cannot: what they hold to has no words in it.
ARM_SKIP := TestLossIsNamedHoweverAnOpeningEnds|TestFlippedBits|TestVersion1AfterACut|TestRepairGivesUpNothingForAnErrorOfTheDisk|TestRoomComesAndGoes|TestCheckDirOf|TestPopulate
arm:
	@if command -v qemu-arm >/dev/null; then \
		GOOS=linux GOARCH=arm GOARM=7 $(GO) test -short -timeout 30m -skip '$(ARM_SKIP)' -exec qemu-arm ./crc16 ./frame/... ./ring ./ledger ./uring ./asyncfile ./seglog && \
		GOOS=linux GOARCH=arm GOARM=7 $(GO) test -exec qemu-arm -run 'OfARing|Waits|AnyStep|ManyDeaths|Packets|Slot' ./ipc && \
		GOOS=linux GOARCH=arm GOARM=7 $(GO) test -exec qemu-arm -skip Killed ./internal/spool && \
		GOOS=linux GOARCH=arm GOARM=7 $(GO) test -exec qemu-arm -run 'Account|Shown' ./cell ./cell/cyclic; \
	else echo "SKIPPED: the ARM tests: qemu-arm is missing; apt install qemu-user"; fi

# What a change should pass before it is committed. FUZZ is how long each fuzzer looks for something new; nothing: not at all, since what they find is
# not found each time. Their seeds are in the tests.
FUZZ ?= 5s
check:
	$(GO) vet ./... && $(GO) test -short .
	$(GO) tool -modfile=tools.mod gofumpt -l -d . | (! grep .)
	$(GO) tool -modfile=tools.mod staticcheck ./...
	$(if $(FUZZ),$(MAKE) --no-print-directory fuzz TIME=$(FUZZ))

TIME ?= 30s
fuzz:
	for f in Tally128 Modbus COBS SLIP Line UBX Length Raw; do $(GO) test ./frame/framings -run '^$$' -fuzz "Fuzz$$f\$$" -fuzztime $(TIME) -fuzzminimizetime 10x || exit 1; done
	$(GO) test ./internal/http1 -run '^$$' -fuzz FuzzHead -fuzztime $(TIME)
	$(GO) test ./server -run '^$$' -fuzz FuzzDifferential -fuzztime $(TIME) -parallel 1
	$(GO) test ./server/internal/h1 -run '^$$' -fuzz FuzzAnyNetwork -fuzztime $(TIME) -parallel 1
	$(GO) test ./server/internal/h1 -run '^$$' -fuzz FuzzInline -fuzztime $(TIME)
	$(GO) test ./seglog -run '^$$' -fuzz FuzzReader -fuzztime $(TIME)
	$(GO) test ./config -run '^$$' -fuzz FuzzConfig -fuzztime $(TIME)
	$(GO) test ./crc16 -run '^$$' -fuzz FuzzSplit -fuzztime $(TIME)
	$(GO) test ./ring -run '^$$' -fuzz FuzzShared -fuzztime $(TIME)
	$(GO) test ./internal/spool -run '^$$' -fuzz FuzzDamage -fuzztime $(TIME)
	$(GO) test ./ledger -run '^$$' -fuzz FuzzState -fuzztime $(TIME)

# What takes longer than every change can wait: ten minutes of random load on each kind of ring, ten million random steps of rings and of
# files, 100,000 rude connections to each kind of server, as many requests beside net/http, a million deaths in the model of a
# ring between processes and ten minutes of real ones, as many in that of a spool and 10,000 real ones, twelve hours of fake time and half an hour of a recorder to which everything
# happens at once, and as long of the demo in two conditions.
.PHONY: soak
soak: build
	$(GO) test ./frame/framings -seeds 20000 -timeout 30m
	$(GO) test ./uring -run RandomLoad -soak 10m -timeout 60m
	$(MAKE) --no-print-directory soak-uring soak-asyncfile
	$(GO) test ./loadgen -run 'TestTruth$$' -truth 5s -timeout 10m -v
	CGO_ENABLED=1 $(GO) test -race ./server -run Churn -connections 100000 -timeout 30m
	$(GO) test ./server -run Differential -requests 100000 -timeout 30m
	$(GO) test ./server -run Integrity -answers 10000000 -timeout 120m
	$(GO) test ./server -run GosOwn -gos-tests . -timeout 120m -v
	$(GO) test ./prefork -run 'RestartsLoseNothing|NothingIsLeft' -requests 100000 -rounds 50 -kills 1000 -timeout 60m
	$(GO) test ./ipc -run 'ManyDeaths|Killed' -kills 1000000 -kill-for 10m -timeout 30m
	$(GO) test ./internal/spool -run 'ManyDeaths|Killed' -kills 1000000 -real-kills 10000 -timeout 30m
	$(GO) test ./server/internal/... -seeds 20000 -timeout 60m
	$(GO) test ./recorder -run EverythingAtOnce -hours 12 -timeout 60m -v
	$(GO) test ./e2e -run IsolatedKills -kills 5000 -timeout 60m -v
	$(GO) test ./e2e -run IsolatedUpgrades -upgrades 20 -timeout 60m -v
	$(GO) test ./e2e/guest -run 'Board$$' -boots 10 -timeout 60m -v
	$(GO) test ./e2e/stranger -run TestSoak -soak 30m -timeout 60m -v
	./$(BIN) demo --for 30m --ports 1 --condition steady
	./$(BIN) demo --for 30m --ports 2 --condition disturbed

# Ten million steps of the model of rings, and of the differential test of files, with the race detector and a collection at each chance.
.PHONY: soak-uring soak-asyncfile
soak-uring:
	GOGC=1 CGO_ENABLED=1 $(GO) test -race ./uring -run 'TestModel$$' -steps 10000000 -timeout 120m -v

soak-asyncfile:
	GOGC=1 CGO_ENABLED=1 $(GO) test -race ./asyncfile -run 'TestDifferential$$' -operations 10000000 -timeout 120m -v

# A cell and a program in C keep 1 ms on one CPU: the cell misses nothing that the other does not miss, too. Half an hour as root; nothing else should run meanwhile.
.PHONY: soak-cell
CELL_TIME ?= 30m
soak-cell:
	$(GO) test ./lab/experiments/rt-cyclic -run 'TestCellBesideC$$' -beside $(CELL_TIME) -timeout 24h -v

# The laboratory's quick run, of the planes that a change touches: make bench PLANE=files,network; default: all. Nothing else should run meanwhile.
# bench-parts is Go's own benchmarks of the parts.
.PHONY: bench-parts
PLANE ?=
bench: build
	./$(BIN) lab all --quick $(if $(PLANE),--plane $(PLANE))

bench-parts:
	$(GO) test -run '^$$' -bench . ./crc16 ./ring ./ipc ./frame/framings ./uring ./asyncfile ./seglog

# Write the expected output of scripts and reports anew, and the copy of the peers that the program carries.
# What README.md says in figures, from the results in lab/results, by lab/report/testdata/figures.tmpl.
.PHONY: figures
figures:
	$(GO) test ./lab/report -run Figures -update

golden: figures
	$(GO) test ./cmd/tallywheel -run TestScripts -update
	$(GO) test ./lab -run 'PeersArchive|ExperimentsList' -update
	$(GO) test ./lab/report -run Golden -update

clean:
	rm -rf bin .deps .deps-board .deps-node .deps-python lab-results
