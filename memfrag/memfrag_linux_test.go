package memfrag

import (
	"context"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

const (
	buddies = "Node 0, zone      DMA      0      1      0      0      0      0      0      0      1      1      3 \n" +
		"Node 0, zone   Normal   7      0      0      0      0      0      0      0      0      2      0 \n"
	types = "Page block order: 9\nPages per block:  512\n\n" +
		"Free pages count per migrate type at order       0      1 \nNode    0, zone      DMA, type    Unmovable      5      6 \n\n" +
		"Number of blocks type     Unmovable      Movable  Reclaimable \nNode 0, zone      DMA            1            7            0 \nNode 0, zone   Normal            2           70            4 \n"
	smaps = "00400000-7fff rollup                   [rollup]\nRss:                1000 kB\nPss:                 900 kB\nPss_Dirty:             1 kB\n" +
		"Private_Dirty:       500 kB\nAnonHugePages:      2048 kB\nSwap:                  3 kB\nSwapPss:               9 kB\n"
	stat = "7 (a b) c) S 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 12345 1 2\n"
)

func kernelFiles(more map[string]string) fstest.MapFS {
	root := fstest.MapFS{}
	for name, text := range map[string]string{
		"proc/buddyinfo": buddies, "proc/pagetypeinfo": types,
		"proc/7/smaps_rollup": smaps, "proc/7/stat": stat,
	} {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	for name, text := range more {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return root
}

// watcherOf looks at files of a test; of asked huge pages got are to be had.
func watcherOf(root fstest.MapFS, got int, err error) *watcher {
	return &watcher{
		root: root, pid: 7, page: 4096, huge: 2 << 20, trials: true, missing: map[string]string{},
		collapse: func(int, int) (int, error) { return got, err }, pooled: func(uint64, int) error { return err },
	}
}

func TestLook(t *testing.T) {
	root := kernelFiles(nil)
	s, err := watcherOf(root, 6, nil).look(time.UnixMilli(5))
	if err != nil {
		t.Fatal(err)
	}
	const small, large = 2 + 256 + 7, 512 + 3*1024 + 2*512 // in pages
	if s.Free != (small+large)*4096 || s.FreeHuge != large*4096 ||
		math.Abs(s.Unusable()-float64(small)/(small+large)) > 1e-12 {
		t.Errorf("%d bytes free, %d in large blocks, %v unusable", s.Free, s.FreeHuge, s.Unusable())
	}
	if want := (Process{
		RSS: 1000 << 10, PSS: 900 << 10, Huge: 2 << 20, Private: 500 << 10,
		Swap: 3 << 10,
	}); *s.Process != want {
		t.Errorf("process %+v, want %+v", *s.Process, want)
	}
	if len(s.Blocks) != 3 || s.Blocks["Unmovable"] != 3 || s.Blocks["Movable"] != 77 || s.Blocks["Reclaimable"] != 4 {
		t.Errorf("blocks %v", s.Blocks)
	}
	w := watcherOf(root, 6, nil)
	for i, after := range []time.Duration{0, time.Second, blocksEvery} {
		s, err := w.look(time.Unix(1e9, 0).Add(after))
		if want := []int{3, 0, 3}[i]; err != nil || len(s.Blocks) != want {
			t.Errorf("%v behind the first: blocks %v: %v", after, s.Blocks, err)
		}
	}
	if len(s.Trials) != 0 { // 18 MiB are free in large blocks
		t.Errorf("trials %+v though little is free", s.Trials)
	}
	if b, err := born(root, 7); b != "12345" || err != nil {
		t.Errorf("born %q: %v", b, err)
	}
}

func TestLookAtWhatIsWrong(t *testing.T) {
	for name, text := range map[string]string{
		"proc/buddyinfo":      "Node 0, zone DMA x",
		"proc/7/smaps_rollup": "Rss: many kB\n",
	} {
		if _, err := watcherOf(kernelFiles(map[string]string{name: text}), 0, nil).look(time.Now()); err == nil {
			t.Errorf("%s with %q is read", name, text)
		}
	}
	empty := kernelFiles(map[string]string{"proc/7/smaps_rollup": ""}) // as of a process that ends
	if _, err := watcherOf(empty, 0, nil).look(time.Now()); !errors.Is(err, errEnded) {
		t.Errorf("a process without memory: %v", err)
	}
	another := watcherOf(kernelFiles(nil), 0, nil)
	another.born = "12344"
	if s, err := another.look(time.Now()); !errors.Is(err, errEnded) {
		t.Errorf("another process that has its number: %+v, %v", s.Process, err)
	}
	another.born = "12345"
	if _, err := another.look(time.Now()); err != nil {
		t.Errorf("the process itself: %v", err)
	}
	gone := kernelFiles(nil)
	delete(gone, "proc/7/smaps_rollup")
	delete(gone, "proc/pagetypeinfo")
	w := watcherOf(gone, 0, nil)
	if _, err := w.look(time.Now()); !errors.Is(err, errEnded) || w.missing["blocks by type"] == "" {
		t.Errorf("a process that is gone: %v; missing %v", err, w.missing)
	}
}

// TestTrials: a pool that is reserved goes before pages that the kernel has to make.
func TestTrials(t *testing.T) {
	pool := func(total, free, promised string) map[string]string {
		const dir = "sys/kernel/mm/hugepages/hugepages-2048kB/"
		return map[string]string{
			dir + "nr_hugepages": total, dir + "free_hugepages": free,
			dir + "resv_hugepages": promised,
		}
	}
	refused := errors.New("refused")
	for _, c := range []struct {
		name  string
		files map[string]string
		got   int
		err   error
		free  uint64
		want  []Trial
		rate  float64
	}{
		{"of a pool", pool("10\n", "6\n", "1\n"), 0, nil, 0, []Trial{{"hugetlb", 2 << 20, 5, 10}}, 0.5},
		{"of a pool that gives none", pool("10", "6", "1"), 0, refused, 0, []Trial{{"hugetlb", 2 << 20, 0, 10}}, 1},
		{"of a pool that is used up", pool("10", "1", "3"), 0, nil, 0, []Trial{{"hugetlb", 2 << 20, 0, 10}}, 1},
		{"of memory", pool("0", "0", "0"), 6, nil, 1 << 30, []Trial{{"thp", 2 << 20, 6, asked}}, 0.25},
		{"an old kernel", nil, 0, refused, 1 << 30, nil, 0},
		{"too little free", nil, asked, nil, 10 << 20, nil, 0},
	} {
		w := watcherOf(kernelFiles(c.files), c.got, c.err)
		all := w.try(c.free)
		if len(all) != len(c.want) || len(all) == 1 && (all[0] != c.want[0] || all[0].Rate() != c.rate) {
			t.Errorf("%s: %+v, want %+v, rate %v", c.name, all, c.want, c.rate)
		}
		if (all == nil) != (w.missing["trial"] != "") {
			t.Errorf("%s: %+v, and missing is %v", c.name, all, w.missing)
		}
	}
}

func testHeader() header {
	return header{
		Memfrag: version, Began: 1000, Interval: time.Second, Page: 4096, Huge: 2 << 20, PID: 7, Born: "5",
		Boot: "b",
	}
}

// TestLogGoesOn opens a log that was cut off anywhere, as a kill or a full disk leaves it: what is
// whole is there, and what is added behind it is read.
func TestLogGoesOn(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	l, err := openLog(name, testHeader())
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		if err := l.add(Sample{At: int64(n + 1), Free: 100}); err != nil {
			t.Fatal(err)
		}
	}
	_ = l.file.Close()
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(whole) + 1 {
		if err := os.WriteFile(name, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		later := testHeader()
		later.Began = 5000
		l, err := openLog(name, later)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		want := max(0, strings.Count(string(whole[:cut]), "\n")-1)
		if len(l.all) != want || want > 0 && l.Began != 1000 {
			t.Errorf("cut at %d: %d samples, want %d; began at %d", cut, len(l.all), want, l.Began)
		}
		if err := l.add(Sample{At: 9}); err != nil {
			t.Fatal(err)
		}
		_ = l.file.Close()
		if s, err := Read(name); err != nil || len(s.Samples) != want+1 || s.Samples[want].At != 9 {
			t.Fatalf("cut at %d, and gone on: %d samples: %v", cut, len(s.Samples), err)
		}
	}
}

// TestLogIsRefused: what is of another process, or no log, is left as it is.
func TestLogIsRefused(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	l, err := openLog(name, testHeader())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openLog(name, testHeader()); err == nil || !strings.Contains(err.Error(), "another memfrag") {
		t.Errorf("a log that somebody writes: %v", err)
	}
	_ = l.file.Close()
	for want, change := range map[string]func(*header){
		"and not of process 8": func(h *header) { h.PID = 8 }, "and not of process 7": func(h *header) { h.Born = "6" },
		"boot c":               func(h *header) { h.Boot = "c" },
		"the machine alone":    func(h *header) { h.PID, h.Born, h.Boot = 0, "", "" },
		"give that --interval": func(h *header) { h.Interval++ }, "of another size": func(h *header) { h.Page++ },
	} {
		h := testHeader()
		change(&h)
		if _, err := openLog(name, h); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	for _, text := range []string{
		"hello\n", "notes", `{"memfrag":2}` + "\n", `{"memfrag":1}` + "\n{}\n",
		strings.Repeat("x", 2*maxText) + "\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := openLog(name, testHeader()); err == nil {
			t.Errorf("%.20q is taken for a log", text)
		}
		if b, _ := os.ReadFile(name); string(b) != text {
			t.Errorf("%.20q has become %.20q", text, b)
		}
	}
}

// TestLogIsBounded: it is thinned out, and keeps its beginning and its end. No link is followed
// that lies beside it.
func TestLogIsBounded(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	if err := os.Symlink("other", name+".new"); err != nil {
		t.Fatal(err)
	}
	l, err := openLog(name, testHeader())
	if err != nil {
		t.Fatal(err)
	}
	const n = 2*MaxSamples + 7
	for at := range int64(n) {
		s := Sample{At: at + 1}
		if at%10 == 9 { // one that is left out
			s.Blocks = map[string]int{"Movable": 1}
		}
		if err := l.add(s); err != nil {
			t.Fatal(err)
		}
		if len(l.all) >= MaxSamples {
			t.Fatalf("%d samples", len(l.all))
		}
	}
	if _, err := openLog(name, testHeader()); err == nil {
		t.Error("a log that was thinned out is not locked any more")
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(name), "other")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it was written through a link: %v", err)
	}
	_ = l.file.Close()
	s, err := Read(name)
	if err != nil || len(s.Samples) != len(l.all) || s.Samples[0].At != 1 || s.Samples[len(s.Samples)-1].At != n {
		t.Errorf("%d samples of %d, %v", len(s.Samples), len(l.all), err)
	}
	blocks := 0
	for i := 1; i < len(s.Samples); i++ {
		if s.Samples[i].Blocks != nil {
			blocks++
		}
		if s.Samples[i].At <= s.Samples[i-1].At {
			t.Fatalf("sample %d is not behind the one before", i)
		}
	}
	if blocks < len(s.Samples)/11 { // each was thinned out with what it has
		t.Errorf("%d of %d samples have blocks", blocks, len(s.Samples))
	}
}

func TestCurve(t *testing.T) {
	var c Curve
	for n := range 11 {
		c.add(float64(n)/10, 3+2*float64(n)/10)
	}
	c.fill()
	if c.First != 3 || c.Last != 5 || math.Abs(c.Mean-4) > 1e-9 || c.Most != 5 || math.Abs(c.PerHour-2) > 1e-9 {
		t.Errorf("%+v", c)
	}
	if line := []rune(c.Line(4)); len(line) != 4 || line[3] != '█' || line[0] >= line[3] {
		t.Errorf("drawn as %q", string(line))
	}
	if got := (Curve{}).Line(4); got != "" {
		t.Errorf("nothing is drawn as %q", got)
	}
	one := Curve{}
	one.add(0, 7)
	one.fill()
	if one.PerHour != 0 || one.Line(60) != "▁" {
		t.Errorf("one point: %+v, %q", one, one.Line(60))
	}
}

// TestRun follows this machine and a process, is interrupted and goes on, until the process ends.
func TestRun(t *testing.T) {
	if _, err := os.Stat("/proc/buddyinfo"); err != nil {
		t.Skipf("SKIPPED: %v; a container that shows /proc/buddyinfo", err)
	}
	sleep := exec.Command(testenv.Program(t, "sleep", "apt install coreutils"), "600")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	kill := func() { _ = sleep.Process.Kill(); _ = sleep.Wait() }
	defer kill()
	cfg := Config{Interval: MinInterval, For: time.Hour, PID: sleep.Process.Pid, Log: filepath.Join(t.TempDir(), "log")}
	seen := 0
	turn := func(end func()) Result {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cfg.Watch = func(s Sample, _ func() Summary) {
			if seen++; s.Process.RSS == 0 || s.Free < s.FreeHuge || s.Free == 0 {
				t.Errorf("%+v", s)
			}
			if end != nil {
				end()
			} else {
				cancel()
			}
		}
		r, err := Run(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := turn(nil); r.Over || r.Ended || r.Resumed != 0 || len(r.Samples) != 1 {
		t.Errorf("interrupted: %+v", r)
	}
	if r := turn(kill); !r.Ended || r.Resumed != 1 || len(r.Samples) != 2 || seen != 2 {
		t.Errorf("gone on: %+v, %d seen", r, seen)
	}
	if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "there is no process") {
		t.Errorf("a process that has ended: %v", err)
	}
	cfg.PID, cfg.Log, cfg.For, cfg.Watch = 0, cfg.Log+"2", MinInterval, nil
	if r, err := Run(t.Context(), cfg); err != nil || !r.Over || len(r.Samples) != 1 {
		t.Errorf("to the end: %+v: %v", r, err)
	}
}

func TestBadConfigs(t *testing.T) {
	for _, cfg := range []Config{
		{Interval: 1, For: time.Hour, Log: "x"},
		{Interval: 2 * time.Hour, For: 3 * time.Hour, Log: "x"},
		{Interval: time.Minute, For: time.Second, Log: "x"},
		{Interval: time.Minute, For: 2 * MaxFor, Log: "x"},
		{Interval: time.Minute, For: time.Hour},
		{Interval: time.Minute, For: time.Hour, Log: "x", PID: -1},
	} {
		if _, err := Run(t.Context(), cfg); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
