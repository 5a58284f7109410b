package memfrag

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Sample is what there was at one moment. Sizes are in bytes.
type Sample struct {
	At       int64  `json:"at"`        // ms since 1970
	Free     uint64 `json:"free"`      // memory that is free, of all zones
	FreeHuge uint64 `json:"free_huge"` // … in blocks of a huge page or more
	// blocks of a huge page, by what they are for: Movable, Unmovable …; of one sample in five
	// minutes
	Blocks  map[string]int `json:"blocks,omitempty"`
	Trials  []Trial        `json:"trials,omitempty"`  // of huge pages
	Process *Process       `json:"process,omitempty"` // nil: none is followed
}

// Process is the memory of a process.
type Process struct {
	RSS     uint64 `json:"rss"`
	PSS     uint64 `json:"pss"`     // RSS, with a share of what others map, too
	Huge    uint64 `json:"huge"`    // in transparent huge pages
	Private uint64 `json:"private"` // written to, and its own
	Swap    uint64 `json:"swap"`
}

// Trial says how many huge pages are to be had.
type Trial struct {
	By   string `json:"by"`   // hugetlb, a pool that is reserved, or thp, which the kernel makes of free memory
	Size uint64 `json:"size"` // of a page
	Got  int    `json:"got"`  // to be had
	Most int    `json:"most"` // of a pool: its pages; of thp: how many were asked for
}

// Name is short: "hugetlb 2 MiB".
func (t Trial) Name() string { return fmt.Sprintf("%s %d MiB", t.By, t.Size>>20) }

// Rate is the share of huge pages that are not to be had, 0 to 1.
func (t Trial) Rate() float64 {
	if t.Most == 0 {
		return 0
	}
	return 1 - float64(t.Got)/float64(t.Most)
}

// Unusable is the share of free memory that lies in blocks smaller than a huge page, 0 to 1.
func (s Sample) Unusable() float64 {
	if s.Free == 0 {
		return 0
	}
	return 1 - float64(s.FreeHuge)/float64(s.Free)
}

// maxLine bounds the lines of the kernel's files.
const maxLine = 64 << 10

// readBuddies adds up /proc/buddyinfo: for each zone, how many blocks of 2^n pages are free.
func readBuddies(r io.Reader, page, huge uint64) (free, freeHuge uint64, err error) {
	lines := bufio.NewScanner(io.LimitReader(r, maxLine))
	zones := 0
	for lines.Scan() {
		_, counts, ok := strings.Cut(lines.Text(), "zone ")
		if !ok {
			continue
		}
		fields := strings.Fields(counts)
		for order := range len(fields) - 1 {
			n, err := strconv.ParseUint(fields[order+1], 10, 64)
			if err != nil || order > 32 {
				return 0, 0, fmt.Errorf("/proc/buddyinfo: %q is no number of blocks", fields[order+1])
			}
			block := page << order
			free += n * block
			if block >= huge {
				freeHuge += n * block
			}
		}
		zones++
	}
	if zones == 0 {
		return 0, 0, fmt.Errorf("/proc/buddyinfo: no zone")
	}
	return free, freeHuge, lines.Err()
}

// readBlocks adds up the last part of /proc/pagetypeinfo: for each zone, how many blocks are of
// which type.
func readBlocks(r io.Reader) map[string]int {
	lines := bufio.NewScanner(io.LimitReader(r, maxLine))
	var types []string
	blocks := map[string]int{}
	for lines.Scan() {
		if _, names, ok := strings.Cut(lines.Text(), "Number of blocks type"); ok {
			types = strings.Fields(names)
			continue
		}
		_, rest, ok := strings.Cut(lines.Text(), "zone ")
		fields := strings.Fields(rest)
		if types == nil || !ok || len(fields) != len(types)+1 {
			continue
		}
		for i, name := range types {
			if n, err := strconv.Atoi(fields[i+1]); err == nil && n > 0 {
				blocks[name] += n
			}
		}
	}
	return blocks
}

// readSmaps adds up /proc/PID/smaps_rollup, or smaps, which has the same lines for each mapping.
func readSmaps(r io.Reader) (p Process, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), ":")
		field := map[string]*uint64{
			"Rss": &p.RSS, "Pss": &p.PSS, "AnonHugePages": &p.Huge, "Private_Dirty": &p.Private,
			"Swap": &p.Swap,
		}[name]
		if !ok || field == nil {
			continue
		}
		kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 54)
		if err != nil {
			return p, fmt.Errorf("smaps: %q is no size", lines.Text())
		}
		*field += kib << 10
	}
	return p, lines.Err()
}

// number reads a file of the kernel that holds one.
func number(root fs.FS, name string) (uint64, error) {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
}

// pool is one of hugetlb.
type pool struct{ size, total, free uint64 }

// pools lists those that have pages.
func pools(root fs.FS) (all []pool) {
	const dir = "sys/kernel/mm/hugepages"
	entries, err := fs.ReadDir(root, dir)
	if err != nil {
		return nil // a kernel without hugetlb
	}
	for _, e := range entries { // hugepages-2048kB
		var kib uint64
		if n, _ := fmt.Sscanf(e.Name(), "hugepages-%dkB", &kib); n != 1 {
			continue
		}
		total, err1 := number(root, path.Join(dir, e.Name(), "nr_hugepages"))
		free, err2 := number(root, path.Join(dir, e.Name(), "free_hugepages"))
		taken, err3 := number(root, path.Join(dir, e.Name(), "resv_hugepages")) // promised, and not touched yet
		if err1 != nil || err2 != nil || err3 != nil || total == 0 {
			continue
		}
		all = append(all, pool{kib << 10, total, free - min(free, taken)})
	}
	return all
}

// startOf finds when a process began in its /proc/PID/stat.
func startOf(stat string) (string, error) {
	_, rest, _ := strings.Cut(stat[strings.LastIndexByte(stat, ')')+1:], " ")
	fields := strings.Fields(rest)
	const at = 19 // the 22nd of all, proc(5)
	if len(fields) <= at {
		return "", errors.New("/proc/PID/stat has no time of a start")
	}
	return fields[at], nil
}
