package doctor

import (
	"fmt"
	"time"
)

// Disk is what a file system has free for an ordinary user.
type Disk struct {
	Bytes  int64
	Files  int64  // that may still be made
	Bounds bool   // whether it has a bound of files
	Memory string // the name of a file system whose files are in memory; else empty
}

// soonFull is how long a log without a limit must have room for: long enough for somebody to see
// the disk fill.
const soonFull = 30 * 24 * time.Hour

// disk looks whether the log has room for what it is to keep, and when it is full.
func (j Job) disk(ask *Asker) []Finding {
	disk, err := ask.Disk(j.Dir)
	space := Finding{Area: job, Name: "room for the log", State: Good, Why: "records of " + j.Dir}
	files := Finding{
		Area: job, Name: "files for the log", State: Good,
		Why: "each segment is one, or more with what proves it; without one the log stops though there is room",
	}
	if err != nil {
		space.State, space.Found, space.Wanted = Unknown, err.Error(), "room"
		return []Finding{space}
	}
	room := disk.Bytes + j.Stored - j.Reserve // for all that the log may have
	rate := 0.0
	for _, l := range j.Lines {
		rate += l.bytesPerSecond()
	}
	full := time.Duration(0)
	if rate > 0 {
		full = time.Duration(min(float64(max(0, room-j.Stored))/rate, 100*365*24*3600) * float64(time.Second))
	}
	space.Found = bytesText(disk.Bytes) + " free" + j.fullText(full, rate)
	switch {
	case j.Keep > 0:
		needed := j.Keep + j.Segment // one is made ready before the oldest goes
		space.Wanted = fmt.Sprintf("keep.size %s, a segment and log.reserve", bytesText(j.Keep))
		if room < needed {
			space.State, space.How = Missing,
				fmt.Sprintf("keep: {size: %dMiB}, or %s more on this disk", max(0, room-j.Segment)>>20,
					bytesText(needed-room))
		}
	case rate == 0:
		space.State, space.Wanted = Unknown, "a limit"
		space.How = "keep: {size: …} removes the oldest: no rate is known of these sources, nor when the disk is full"
	default:
		least := soonFull
		space.Wanted = "room for 30 days, or keep.size"
		if j.KeepAge > 0 {
			least, space.Wanted = j.KeepAge, fmt.Sprintf("room for keep.age %v", j.KeepAge)
		}
		if full < least {
			space.State, space.How = Poor,
				"keep: {size: …} removes the oldest before the disk is full; or a larger disk"
		}
	}
	files.judge(j, disk, max(0, room))
	if disk.Memory == "" {
		return []Finding{space, files}
	}
	return []Finding{space, files, {
		Area: job, Name: "the log's disk", State: Poor, Found: disk.Memory + ", which is memory", Wanted: "a disk",
		Why: "what is recorded is gone when the machine starts again, and takes its memory until then",
		How: "log: {dir: …} with a folder on a disk",
	}}
}

// fullText says how long until the disk is full, where that can be said.
func (j Job) fullText(full time.Duration, rate float64) string {
	if rate == 0 {
		return ""
	}
	text := fmt.Sprintf(", full in %s at the full rate of the serial lines, %s/s", longText(full),
		bytesText(int64(rate)))
	if j.Unrated > 0 {
		text += fmt.Sprintf("; sooner by what %d sources send whose rate nobody knows", j.Unrated)
	}
	return text
}

// judge holds the files that the segments of room bytes, or of what is kept, need against those
// that the disk has.
func (f *Finding) judge(j Job, disk Disk, room int64) {
	most := room
	if j.Keep > 0 {
		most = j.Keep
	}
	needed := (max(0, most-j.Stored)/max(1, j.Segment) + 2) * int64(max(1, j.FilesEach))
	f.Wanted = fmt.Sprint(needed)
	switch f.Found = fmt.Sprintf("%d inodes are free", disk.Files); {
	case !disk.Bounds:
		f.Found = "this file system makes inodes as they are needed"
	case disk.Files < needed:
		f.State, f.How = Poor,
			"remove small files there (df -i), give the log a file system of its own, or set a larger log.segment"
	}
}

// longText is a time of hours or days for people.
func longText(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= 100*365*day:
		return "more than 100 years"
	case d >= 2*day:
		return fmt.Sprintf("%d days", d/day)
	}
	return d.Round(time.Minute).String()
}
