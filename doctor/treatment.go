package doctor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// Treatment is a set of changes.
type Treatment struct {
	Changes []Change
	kernel  Kernel
	record  string
	undo    bool
}

// Change is one setting, before and after.
type Change struct {
	Path string `json:"path"`
	Old  string `json:"old"`
	New  string `json:"new"`
	// Skip says why it will not be changed: when undoing, somebody else has changed it since.
	Skip string `json:"-"`
}

// recordFile is what is written down of all changes that stand.
type recordFile struct {
	Changed time.Time `json:"changed"`
	Changes []Change  `json:"changes"`
}

// ErrNothing says that there is nothing to change.
var ErrNothing = errors.New("there is nothing to change")

// Prescribe lists the changes that are safe, with the values that they replace. record is the file
// for those.
func (k Kernel) Prescribe(findings []Finding, record string) (*Treatment, error) {
	t := &Treatment{kernel: k, record: record}
	for _, f := range findings {
		if f.Fix == nil || f.State == Good {
			continue
		}
		old, ok := k.read(f.Fix.Path)
		if !ok {
			continue
		}
		t.Changes = append(t.Changes, Change{Path: f.Fix.Path, Old: choice(old), New: f.Fix.Value})
	}
	if len(t.Changes) == 0 {
		return nil, ErrNothing
	}
	return t, nil
}

// choice takes the word in brackets out of a list such as "always [madvise] never", which is how
// such a file is written, too.
func choice(value string) string {
	if _, rest, ok := strings.Cut(value, "["); ok {
		if word, _, ok := strings.Cut(rest, "]"); ok {
			return word
		}
	}
	return value
}

// Undo lists the changes that put back what is written down in the record. What has another value
// by now than the doctor gave it is left alone.
func (k Kernel) Undo(record string) (*Treatment, error) {
	r, err := readRecord(record)
	if err != nil {
		return nil, err
	}
	t := &Treatment{kernel: k, record: record, undo: true}
	for i := len(r.Changes) - 1; i >= 0; i-- {
		c := r.Changes[i]
		back := Change{Path: c.Path, Old: c.New, New: c.Old}
		switch now, ok := k.read(c.Path); {
		case !ok:
			back.Skip = "it is not there any more"
		case choice(now) == c.New:
		case choice(now) == c.Old: // or the doctor was killed before it had changed it
			back.Skip = "it is " + shown(c.Old) + " already"
		default:
			back.Skip = fmt.Sprintf("it is %s now, not the %s that was set: somebody has changed it since",
				shown(choice(now)), shown(c.New))
		}
		t.Changes = append(t.Changes, back)
	}
	if len(t.Changes) == 0 {
		return nil, ErrNothing
	}
	return t, nil
}

// maxRecord is the most bytes that are written down of a treatment.
const maxRecord = 1 << 20

func readRecord(path string) (r recordFile, err error) {
	b, err := sys.ReadOrdinary(path, maxRecord)
	if errors.Is(err, os.ErrNotExist) {
		return r, ErrNothing
	} else if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil && !bytes.HasPrefix(bytes.TrimSpace(b), []byte("{")) {
		return r, fmt.Errorf("%s is no record of the doctor: %w", path, err)
	} else if err != nil {
		return r, fmt.Errorf("%s: %w; put back by hand what it says, then remove it", path, err)
	}
	for _, c := range r.Changes {
		if err := c.check(); err != nil {
			return recordFile{}, fmt.Errorf("%s: %w; no doctor has written that: nothing was changed", path, err)
		}
	}
	return r, nil
}

// maxValue is the most bytes that a setting may have: those that the doctor changes have a few.
const maxValue = 128

// treated lists the settings that are safe to change, as patterns of [path.Match].
func treated() []string {
	return []string{
		"/proc/sys/vm/swappiness", "/proc/sys/net/core/rmem_max", "/proc/sys/net/core/netdev_max_backlog",
		"/proc/sys/net/core/somaxconn",
		"/proc/sys/net/ipv4/tcp_max_syn_backlog", "/proc/sys/fs/file-max",
		"/sys/kernel/mm/transparent_hugepage/enabled", "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
		"/sys/class/tty/*/device/latency_timer", "/sys/class/tty/*/rx_trig_bytes",
	}
}

// check reports what no doctor writes down. Whoever can write the record must not have root read,
// show or write anything else: by some settings of the kernel a program is run.
func (c Change) check() error {
	isTreated := slices.ContainsFunc(treated(), func(p string) bool { ok, _ := path.Match(p, c.Path); return ok })
	if !isTreated || path.Clean(c.Path) != c.Path {
		return fmt.Errorf("%s is no setting that the doctor changes", shown(c.Path))
	}
	for _, v := range []string{c.Old, c.New} {
		if len(v) > maxValue || strings.ContainsFunc(v, unicode.IsControl) {
			return fmt.Errorf("%s is no value for %s", shown(v), c.Path)
		}
	}
	return nil
}

// shown is a value of a file as one short line.
func shown(v string) string {
	const most = 40
	if len(v) > most {
		v = strings.ToValidUTF8(v[:most], "") + "…"
	}
	if strings.ContainsFunc(v, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(v)
	}
	return v
}

// Apply makes the changes. The old values are written down, durably, before the first is made:
// whatever happens then, they can be put back. It goes on past a setting that cannot be changed and
// returns all errors.
func (t *Treatment) Apply() error {
	if t.undo {
		return t.putBack()
	}
	r, err := readRecord(t.record)
	if err != nil && !errors.Is(err, ErrNothing) {
		return err
	}
	r.Changed = time.Now().UTC().Truncate(time.Second)
	for _, c := range t.Changes {
		r.remember(c)
	}
	if err := r.write(t.record); err != nil {
		return err
	}
	var errs []error
	for _, c := range t.Changes {
		if err := t.kernel.write(c.Path, c.New); err != nil {
			errs = append(errs, err)
			r.forget(c.Path)
		}
	}
	return errors.Join(append(errs, r.write(t.record))...)
}

// remember adds a change; of a setting that was changed before, the first old value is kept: undo
// puts back what was there before the doctor came.
func (r *recordFile) remember(c Change) {
	for i := range r.Changes {
		if r.Changes[i].Path == c.Path {
			r.Changes[i].New = c.New
			return
		}
	}
	r.Changes = append(r.Changes, c)
}

func (r *recordFile) forget(path string) {
	for i := range r.Changes {
		if r.Changes[i].Path == path {
			r.Changes = append(r.Changes[:i], r.Changes[i+1:]...)
			return
		}
	}
}

// write writes the record; one without changes is removed.
func (r *recordFile) write(path string) error {
	if len(r.Changes) == 0 {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	b, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := sys.CreateBeside(path, os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return sys.SyncDir(filepath.Dir(path))
}

func (t *Treatment) putBack() error {
	r, err := readRecord(t.record)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range t.Changes {
		if c.Skip == "" {
			if err := t.kernel.write(c.Path, c.New); err != nil {
				errs = append(errs, err)
				continue // it stays in the record
			}
		}
		r.forget(c.Path)
	}
	return errors.Join(append(errs, r.write(t.record))...)
}

// write gives a setting a value.
func (k Kernel) write(name, value string) error {
	f, err := os.OpenFile(k.path(name), os.O_WRONLY|os.O_TRUNC, 0)
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w; run as root", err)
	} else if err != nil {
		return err
	}
	_, err = f.WriteString(value + "\n")
	return errors.Join(err, f.Close())
}
