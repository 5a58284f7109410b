package recorder

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/ledger"
)

// measures is how often a soak measures what there is.
const measures = 24

// measure notes how much there is of everything that could grow, while nothing is on its way.
func (o *soak) measure() {
	o.calm(true)
	o.pass(5 * time.Second)
	synctest.Wait()
	n := map[string]int{}
	tally(n, reflect.ValueOf(o.r), "recorder", map[uintptr]bool{})
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	n[heapName], n["goroutines"] = int(m.HeapAlloc), runtime.NumGoroutine()
	o.k.mu.Lock()
	n["open devices"], n["wires"] = o.k.open, len(o.k.fds)
	o.k.mu.Unlock()
	o.bad.mu.Lock()
	n["open files of the log"] = o.bad.files
	o.bad.mu.Unlock()
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		n["descriptors"] = len(fds)
	}
	names, _ := o.disk.List()
	n["files of the log"] = len(names)
	files, _ := filepath.Glob(filepath.Join(o.dir, "*"))
	for _, name := range files {
		if at, err := os.Stat(name); err == nil {
			n["bytes of "+filepath.Base(name)] = int(at.Size())
		}
	}
	o.grown = append(o.grown, n)
	o.calm(false)
}

const heapName = "bytes of the heap"

// fakes are types of the scenarios that the recorder holds.
var fakes = []string{
	"simDevice", "simListener", "simReader", "simHandle", "simDisk", "simFile", "endpoint", "wire",
	"kernel",
}

// tally adds up the lengths of all lists and maps that can be reached from v by types of the
// recorder's own packages.
func tally(n map[string]int, v reflect.Value, path string, seen map[uintptr]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() && !seen[v.Pointer()] {
			seen[v.Pointer()] = true
			tally(n, v.Elem(), path, seen)
		}
	case reflect.Interface:
		if !v.IsNil() {
			tally(n, v.Elem(), path, seen)
		}
	case reflect.Struct:
		pkg := v.Type().PkgPath()
		if !strings.Contains(pkg, "tallywheel") || strings.Contains(pkg, "internal/fault") ||
			slices.Contains(fakes, v.Type().Name()) {
			return
		}
		for i := range v.NumField() {
			at := path + "." + v.Type().Field(i).Name
			// a list: its members are in a map, too
			if f := v.Type().Field(i).Type; f.Kind() == reflect.Pointer && f.Elem() == v.Type() {
				continue
			}
			tally(n, v.Field(i), at, seen)
		}
	case reflect.Map:
		n[path] += v.Len()
		for each := v.MapRange(); each.Next(); {
			tally(n, each.Value(), path+"[]", seen)
		}
	case reflect.Slice:
		n[path] += v.Len()
		if v.Type().Elem().Kind() != reflect.Uint8 {
			for i := range v.Len() {
				tally(n, v.Index(i), path+"[]", seen)
			}
		}
	case reflect.Chan:
		n[path] += v.Len()
	}
}

// bound is how much there may be of what has a bound of its own that takes longer than two hours to
// reach; 0: of anything else.
func (o *soak) bound(path string) int {
	ports := len(o.sources) + 2 // changeOther adds up to two
	switch {
	case strings.HasSuffix(path, ".outages"), strings.HasSuffix(path, ".Outages"):
		return ports * 256 // of each port package ledger keeps so many
	case strings.HasSuffix(path, ".gaps"): // numbers that never came; each book follows 4096 of a stream
		return 4096
	// what is handed on, most of it where much is in flight
	case strings.HasSuffix(path, ".carried"), strings.HasSuffix(path, ".Gaps"):
		return ports * (ledger.MaxCarriedGaps + 2*ledger.MaxGapsAhead)
	case path == "bytes of "+archive.HistoryFile: // what sources had that a reload took out, or changed
		return o.turns["change"] * 4 * 8 << 10
	}
	return 0
}

// flat holds what there was in the last hour against what there was in the second.
func (o *soak) flat() {
	most := func(all []map[string]int) map[string]int {
		sum := map[string]int{}
		for _, n := range all {
			for path, k := range n {
				sum[path] = max(sum[path], k)
			}
		}
		return sum
	}
	at := func(hour int) int { return hour * len(o.grown) / 12 }
	then, now := most(o.grown[at(1):at(2)]), most(o.grown[at(11):])
	for _, path := range slices.Sorted(maps.Keys(now)) {
		slack := then[path]/5 + 64
		if strings.HasPrefix(path, "bytes of") {
			slack = then[path]/10 + 256<<10
		}
		if strings.HasPrefix(path, "bytes of") || !strings.HasPrefix(path, "recorder") || now[path] > 500 {
			o.t.Logf("%s: %d in the second hour, %d in the last", path, then[path], now[path])
		}
		if now[path] > max(then[path]+slack, o.bound(path)) {
			o.complain("%s: %d in the second hour, %d in the last", path, then[path], now[path])
		}
	}
}

// What grows is seen, wherever the recorder holds it.
func TestGrowthIsSeen(t *testing.T) {
	r := &Recorder{places: map[string]place{}}
	o := &soak{stage: &stage{t: t}}
	for n := range measures {
		r.losses.list = append(r.losses.list, make([]archive.Loss, 10)...)
		r.leaving = []*port{{lane: &lane{left: half{bytes: make([]byte, 100*n)}}}}
		now := map[string]int{heapName: 1 << 20}
		tally(now, reflect.ValueOf(r), "recorder", map[uintptr]bool{})
		o.grown = append(o.grown, now)
	}
	o.flat()
	for _, path := range []string{"recorder.losses.list", "recorder.leaving[].lane.left.bytes"} {
		if !slices.ContainsFunc(o.complaints, func(c string) bool { return strings.HasPrefix(c, path+":") }) {
			t.Errorf("that %s grows is not seen: %q", path, o.complaints)
		}
	}
	if len(o.complaints) != 2 {
		t.Errorf("want two: %q", o.complaints)
	}
}
