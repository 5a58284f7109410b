package serial

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/windows/registry"
)

// List lists the serial ports of this machine by number. It opens none of them. Their identity is
// not known here: Windows gives an adapter that has a serial number the same COM name each time.
func List() ([]Info, error) {
	const path = `HARDWARE\DEVICEMAP\SERIALCOMM` // each driver writes its ports there
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, path, registry.QUERY_VALUE)
	if errors.Is(err, os.ErrNotExist) { // no driver has been loaded since the start
		return []Info{}, nil
	} else if err != nil {
		return nil, fmt.Errorf("list serial ports: registry: %s: %w", path, err)
	}
	defer key.Close()
	devices, err := key.ReadValueNames(0)
	if err != nil {
		return nil, fmt.Errorf("list serial ports: registry: %s: %w", path, err)
	}
	ports := []Info{}
	for _, device := range devices { // \Device\VCP0 = COM3
		if name, _, err := key.GetStringValue(device); err == nil { // else it has gone meanwhile
			ports = append(ports, Info{Path: name, Driver: device})
		}
	}
	slices.SortFunc(ports, func(a, b Info) int {
		if d := number(a.Path) - number(b.Path); d != 0 {
			return d
		}
		return strings.Compare(a.Path, b.Path)
	})
	return ports, nil
}

// number is that of a COM port; 0: it is called otherwise.
func number(path string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(path, "COM"))
	return n
}
