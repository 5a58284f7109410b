package kernelfacts

import (
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"
)

// TestOptions: the article's option is found in a configuration that has it, packed or not, and the
// kernel's is not taken for it.
func TestOptions(t *testing.T) {
	for text, want := range map[string][2]string{
		"CONFIG_IO_URING=y\nCONFIG_AIO=y\n":     {"", "CONFIG_IO_URING=y"},
		"# CONFIG_IO_URING is not set\n":        {"", "CONFIG_IO_URING is not set"},
		"CONFIG_IOURING=y\n":                    {"CONFIG_IOURING=y", "CONFIG_IO_URING is not"},
		"CONFIG_IOURING_TEST=y\nCONFIG_AIO=y\n": {"", "CONFIG_IO_URING is not"},
	} {
		for _, name := range []string{"config", "config.gz"} {
			path := filepath.Join(t.TempDir(), name)
			f, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			if name == "config" {
				_, err = f.WriteString(text)
			} else {
				w := gzip.NewWriter(f)
				if _, err = w.Write([]byte(text)); err == nil {
					err = w.Close()
				}
			}
			if err != nil || f.Close() != nil {
				t.Fatal(err)
			}
			articles, real, err := options(path)
			if err != nil || [2]string{articles, real} != want {
				t.Errorf("%s, %q: %q and %q, %v", name, text, articles, real, err)
			}
		}
	}
}
