package probe

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Ring is what the kernel says of an io_uring ring of a running process, in
// /proc/PID/fdinfo (fs/io_uring, io_uring_show_fdinfo; since Linux 5.9). It does not say with which
// flags the ring was set up; a polling thread shows SQPOLL.
type Ring struct {
	FD              int    `json:"fd"`
	Submissions     uint64 `json:"submissions"` // entries of the queue
	Completions     uint64 `json:"completions"`
	SQPoll          bool   `json:"sqpoll"`
	Thread          int    `json:"thread,omitempty"`     // that polls for submissions, where it is awake or known
	ThreadCPU       int    `json:"thread_cpu,omitempty"` // on which it ran last
	Files           uint64 `json:"registered_files"`
	Buffers         uint64 `json:"registered_buffers"`
	SubmissionsLeft uint64 `json:"submissions_waiting"` // submitted, and not yet taken by the kernel
	CompletionsLeft uint64 `json:"completions_waiting"` // complete, and not yet reaped
}

const (
	ringLink  = "anon_inode:[io_uring]"
	mostRings = 4096
)

// Rings lists the rings that a process has open. It needs no more than the right to look at the
// process.
func Rings(pid int) ([]Ring, error) {
	if err := isProcess(pid); err != nil {
		return nil, err
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("probe: the descriptors of process %d: %w; look as its user, or as root", pid, err)
	}
	all := []Ring{} // as JSON a list, too, where there is none
	for _, e := range entries {
		link, err := os.Readlink(filepath.Join(dir, e.Name()))
		fd, notNumber := strconv.Atoi(e.Name())
		if err != nil || notNumber != nil || link != ringLink || len(all) == mostRings {
			continue // closed meanwhile, or something else
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", pid, fd))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("probe: %w", err)
		}
		r := parseRing(text)
		r.FD = fd
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Ring) int { return a.FD - b.FD }) // not 11 before 9
	return all, nil
}

// parseRing reads the lines NAME: VALUE of a ring; what a kernel does not say stays 0.
func parseRing(text []byte) (r Ring) {
	number := map[string]uint64{}
	r.Thread = -1
	for line := range bytes.Lines(text) {
		name, value, ok := strings.Cut(string(line), ":")
		if !ok {
			continue
		}
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		switch n, err := strconv.ParseInt(value, 0, 64); {
		case err != nil:
		case name == "SqThread":
			r.Thread = int(n)
		case name == "SqThreadCpu":
			r.ThreadCPU = int(n)
		default:
			if _, seen := number[name]; !seen { // below there are lists of entries
				number[name] = uint64(n)
			}
		}
	}
	entries := func(mask string) uint64 {
		if _, ok := number[mask]; !ok {
			return 0
		}
		return number[mask] + 1
	}
	r.Submissions, r.Completions = entries("SqMask"), entries("CqMask")
	r.Files, r.Buffers = number["UserFiles"], number["UserBufs"]
	r.SubmissionsLeft, r.CompletionsLeft = uint64(uint32(number["SqTail"]-number["SqHead"])),
		uint64(uint32(number["CqTail"]-number["CqHead"]))
	if r.SQPoll = r.Thread >= 0; !r.SQPoll {
		r.Thread, r.ThreadCPU = 0, 0
	}
	return r
}

// String says it in one line.
func (r Ring) String() string {
	poll := "no polling thread"
	if r.SQPoll {
		poll = fmt.Sprintf("thread %d polls, on CPU %d", r.Thread, r.ThreadCPU)
	}
	return fmt.Sprintf("ring %d: %d submissions, %d completions, %s; registered: %d files, %d buffers; waiting: %d submissions, %d completions",
		r.FD, r.Submissions, r.Completions, poll, r.Files, r.Buffers, r.SubmissionsLeft, r.CompletionsLeft)
}
