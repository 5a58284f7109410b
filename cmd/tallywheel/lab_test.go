package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestOneReportAFolder: two runs do not write their reports into one folder.
func TestOneReportAFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	first, err := takeFolder(path)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := takeFolder(path); err == nil || !strings.Contains(err.Error(), "--out") {
		t.Errorf("the second has it, too: %v %v", second, err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := takeFolder(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}
