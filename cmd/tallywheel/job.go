package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/doctor"
	"github.com/tallywheel/tallywheel/internal/sockets"
	"github.com/tallywheel/tallywheel/recorder"
	"github.com/tallywheel/tallywheel/serial"
)

// cellMemory is what the reader of isolate: cell may allocate, beside the memory of its sources.
const cellMemory = 64 << 20

// filesEach is what a segment has: itself and its index.
const filesEach = 2

// jobOf is what a configuration asks of the machine.
func jobOf(c config.Config) doctor.Job {
	j := doctor.Job{
		Senders: c.Devices(), Dir: c.Log.Dir, Keep: int64(c.Log.Keep.Size), KeepAge: c.Log.Keep.Age,
		Reserve: int64(c.Log.Reserve), Segment: int64(c.Log.Segment), Stored: stored(c.Log.Dir), FilesEach: filesEach,
	}
	j.FilesLeast, j.FilesMost = recorder.Descriptors(c)
	if c.Isolated() {
		j.FilesKept = keeperTakes(c)
	}
	if c.KeepsTime() {
		j.Priority, j.Memory = c.Cell.Priority, cellMemory
	}
	for _, s := range c.Sources {
		each, devices := int64(s.Buffer), int64(1)
		if c.Isolated() {
			spool := int64(recorder.SpoolBytes(s, c.KeepsTime()))
			each += spool
			if s.Spill != nil { // one before the file, and one behind it
				each += spool
			}
		}
		switch {
		case s.UDP != nil:
			j.Datagrams = sockets.DatagramBuffer
		case s.TCP.All():
			devices += int64(s.TCP.MaxPeers)
			j.Backlog = max(j.Backlog, s.TCP.MaxPeers)
		}
		j.Memory += devices * each
		if s.Serial == nil {
			j.Unrated++
			continue
		}
		line := doctor.Line{
			Source: s.ID, Port: s.Serial.Port, Baud: s.Serial.Baud,
			CharBits: s.Serial.Line().CharBits(), Trigger: s.Serial.FIFOTrigger,
		}
		if path, err := serial.Resolve(s.Serial.Port, ""); err == nil {
			if path, err = filepath.EvalSymlinks(path); err == nil {
				line.TTY = strings.TrimPrefix(path, "/dev/")
			}
		}
		j.Lines = append(j.Lines, line)
	}
	return j
}

// stored is how much the files in a folder have; 0 if it is not there yet.
func stored(dir string) (bytes int64) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
	}
	return bytes
}
