package lab

import "testing"

// TestComplaint: what a compiler does before it fails is not why it fails.
func TestComplaint(t *testing.T) {
	for said, want := range map[string]string{
		"go: downloading example.org/a v1.0.0\ngo: example.org/a@v1.0.0: module lookup disabled\n": "go: example.org/a@v1.0.0: module lookup disabled",
		"# peers/a\na/main.go:13:18: undefined: unix.IoUringSetup\n":                               "a/main.go:13:18: undefined: unix.IoUringSetup",
		"a.c:1:10: fatal error: liburing.h: No such file or directory\n":                           "a.c:1:10: fatal error: liburing.h: No such file or directory",
		"go: downloading example.org/a v1.0.0\n":                                                   "",
		"":                                                                                         "",
	} {
		if got := complaint(said); got != want {
			t.Errorf("of %q the complaint is %q, want %q", said, got, want)
		}
	}
}
