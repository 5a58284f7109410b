package kernelfacts

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/tallywheel/tallywheel/lab/contestant"
)

// kernelOption looks for the article's option, and for the one that there is, in the configuration
// of the kernel that runs.
func kernelOption(*contestant.Turn) (contestant.Finding, error) {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return contestant.Finding{}, err
	}
	release := strings.TrimSpace(string(b))
	for _, path := range []string{"/proc/config.gz", "/boot/config-" + release} {
		articles, real, err := options(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return contestant.Finding{}, err
		}
		return contestant.Finding{
			Yes:  articles != "",
			Text: fmt.Sprintf("%s of Linux %s: CONFIG_IOURING is in it: %v; %s", path, release, articles != "", real),
		}, nil
	}
	return contestant.Finding{}, fmt.Errorf("the configuration of Linux %s is nowhere: neither /proc/config.gz nor in /boot", release)
}

// options reads a configuration and returns the lines of the article's option, "" if it is not
// there, and of the kernel's.
func options(path string) (articles, real string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", "", err
	}
	defer f.Close()
	in := io.Reader(f)
	if strings.HasSuffix(path, ".gz") {
		if in, err = gzip.NewReader(f); err != nil {
			return "", "", err
		}
	}
	real = "CONFIG_IO_URING is not"
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		switch line := strings.TrimPrefix(lines.Text(), "# "); {
		case strings.HasPrefix(line, "CONFIG_IOURING="), strings.HasPrefix(line, "CONFIG_IOURING "):
			articles = line
		case strings.HasPrefix(line, "CONFIG_IO_URING="), strings.HasPrefix(line, "CONFIG_IO_URING "):
			real = line
		}
	}
	return articles, real, lines.Err()
}
