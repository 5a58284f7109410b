//go:build unix

package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
)

// A configuration that cannot be read to its end is an error of its reload, and a stop is heard.
func TestReloadOfWhatIsNoFile(t *testing.T) {
	for kind, put := range map[string]func(path string) error{
		"a pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a device": func(path string) error { return os.Symlink("/dev/zero", path) },
		"too large": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40))
		},
		"a file, as one": func(path string) error { return os.WriteFile(path, []byte("{}"), 0o600) },
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "c.yaml")
		text := "log: {dir: " + filepath.Join(dir, "data") + ", segment: 1MiB, reserve: 1MiB}\napi: {listen: off}\n" +
			"sources: [{id: a, udp: {listen: \"127.0.0.1:0\"}, frame: line}]\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		hup, ended := make(chan os.Signal), make(chan error, 1)
		go func() { ended <- record(ctx, file, hup, false, io.Discard) }()
		hup <- syscall.SIGHUP // it is taken once the recorder runs
		if err := errors.Join(os.Remove(file), put(file)); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second is taken when the first is done with
			select {
			case hup <- syscall.SIGHUP:
			case <-time.After(time.Minute):
				t.Fatalf("%s: a reload does not end", kind)
			}
		}
		stop()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("%s: %v", kind, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: the recorder does not end", kind)
		}
	}
}

// A stop does not wait for a disk that does not answer, and nothing is changed after it.
func TestStopWhileAConfigurationIsRead(t *testing.T) {
	reading, answer := make(chan bool), make(chan bool)
	r := &reloader{
		load:   func() (config.Config, error) { reading <- true; <-answer; return config.Config{}, nil },
		change: func(config.Config) error { t.Error("the recorder is changed after its end"); return nil },
		log:    slog.New(slog.DiscardHandler),
	}
	done := make(chan bool)
	go func() { r.reload(); close(done) }()
	<-reading
	r.end() // it returns
	close(answer)
	<-done
}

// Who waits for a configuration that nobody writes into a pipe can be stopped.
func TestStopWhileNobodyWritesAConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	_, err := loading(ctx, file, 0, config.Load)
	if err == nil || !strings.Contains(err.Error(), "stopped while it was read") {
		t.Errorf("%v", err)
	}
	f, err := os.OpenFile(file, os.O_WRONLY, 0) // it reads no more when this is closed
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}
