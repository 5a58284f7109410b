package rt

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

func TestParseCPUs(t *testing.T) {
	for _, c := range []struct {
		list string
		want CPUs
		text string
	}{
		{"0", CPUs{0}, "0"},
		{"0,3-5\n", CPUs{0, 3, 4, 5}, "0,3-5"},
		{"0-10:2", CPUs{0, 2, 4, 6, 8, 10}, "0,2,4,6,8,10"},
		{"5,4,4-6,0-1", CPUs{0, 1, 4, 5, 6}, "0,1,4-6"},
		{"8191", CPUs{8191}, "8191"},
		{"3-5:9223372036854775807", CPUs{3}, "3"},
	} {
		got, err := ParseCPUs(c.list)
		if err != nil || !slices.Equal(got, c.want) || got.String() != c.text {
			t.Errorf("%q: %v, %q, %v; want %v, %q", c.list, []int(got), got, err, []int(c.want), c.text)
		}
	}
	for _, bad := range []string{
		"", ",", "0,", "-1", "5-3", "0-4:0", "0-4:-1", "3:2", "a", "0x1", "8192",
		"0-99999999999", "1-2-3", "1 2", "+1",
	} {
		if got, err := ParseCPUs(bad); err == nil || !strings.Contains(err.Error(), "write 0,3-5") {
			t.Errorf("%q is read as %v: %v", bad, got, err)
		}
	}
}

// FuzzParseCPUs holds what is read and what is printed against each other.
func FuzzParseCPUs(f *testing.F) {
	f.Add("0,3-5")
	f.Add("0-10:2,7")
	f.Fuzz(func(t *testing.T, list string) {
		cpus, err := ParseCPUs(list)
		if err != nil {
			return
		}
		again, err := ParseCPUs(cpus.String())
		if err != nil || !slices.Equal(cpus, again) || !slices.IsSorted(cpus) {
			t.Errorf("%q: %v prints %q, which is %v: %v", list, []int(cpus), cpus, []int(again), err)
		}
	})
}

// TestTasksetAgrees has taskset(1) print what it makes of the lists of CPUs here.
func TestTasksetAgrees(t *testing.T) {
	testenv.Program(t, "taskset", "apt install util-linux")
	all, err := Affinity(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range []string{all.String(), all[:1].String()} {
		out, err := exec.Command("taskset", "-c", list, "sh", "-c", "taskset -cp $$").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if _, got, _ := strings.Cut(strings.TrimSpace(string(out)), "list: "); got != list {
			t.Errorf("taskset prints %q for %q", got, list)
		}
	}
}
