package serial

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// System is where ports are looked for; the zero value is this machine.
type System struct {
	Sys string // "" means /sys
	Dev string // "" means /dev
}

func (s System) sys(parts ...string) string {
	root := s.Sys
	if root == "" {
		root = "/sys"
	}
	return filepath.Join(append([]string{root}, parts...)...)
}

func (s System) dev(parts ...string) string {
	root := s.Dev
	if root == "" {
		root = "/dev"
	}
	return filepath.Join(append([]string{root}, parts...)...)
}

// List lists the serial ports of this machine.
func List() ([]Info, error) { return System{}.List() }

// List lists the serial ports by path. It opens none of them. Console and pseudo-terminals, and
// ttyS lines behind which there is no UART, are not in it.
func (s System) List() ([]Info, error) {
	entries, err := os.ReadDir(s.sys("class", "tty"))
	if err != nil {
		return nil, fmt.Errorf("list serial ports: %w", err)
	}
	links := s.byID()
	ports := []Info{}
	for _, e := range entries {
		if info, ok := s.describe(e.Name()); ok {
			info.ByID = links[info.Path]
			ports = append(ports, info)
		}
	}
	slices.SortFunc(ports, func(a, b Info) int { return strings.Compare(a.Path, b.Path) })
	return ports, nil
}

// describe reads one entry of /sys/class/tty.
func (s System) describe(name string) (Info, bool) {
	at := s.sys("class", "tty", name)
	device, err := filepath.EvalSymlinks(filepath.Join(at, "device"))
	if err != nil { // virtual terminals have no device
		return Info{}, false
	}
	if strings.HasPrefix(name, "ttyS") && attribute(at, "type") == "0" {
		return Info{}, false
	}
	info := Info{Path: s.dev(name), Driver: base(filepath.Join(device, "driver"))}
	if info.Driver == "serial8250" && attribute(at, "type") == "" { // older kernels: nothing says that there is a UART
		return Info{}, false
	}
	usb, iface := device, ""
	for usb != "/" && usb != "." {
		if n := attribute(usb, "bInterfaceNumber"); n != "" {
			iface = n
		}
		if attribute(usb, "idVendor") != "" {
			break
		}
		usb = filepath.Dir(usb)
	}
	if v := attribute(usb, "idVendor"); v != "" {
		info.VendorID, info.ProductID = v, attribute(usb, "idProduct")
		info.Serial = attribute(usb, "serial")
		info.Manufacturer, info.Product = attribute(usb, "manufacturer"), attribute(usb, "product")
		where := info.Serial
		if where == "" { // without a number, the place on the bus is all there is
			where = "at-" + filepath.Base(usb)
		}
		info.Identity = fmt.Sprintf("usb:%s:%s:%s:%s", info.VendorID, info.ProductID, where, iface)
		return info, true
	}
	place := strings.TrimPrefix(device, s.sys("devices")+string(filepath.Separator))
	info.Identity = "sys:" + place
	if port := attribute(at, "line"); port != "" {
		info.Identity += ":" + port
	}
	return info, true
}

// byID maps device nodes to the links that udev made for them.
func (s System) byID() map[string]string {
	links := map[string]string{}
	dir := s.dev("serial", "by-id")
	entries, _ := os.ReadDir(dir) // there is none without udev
	for _, e := range entries {
		link := filepath.Join(dir, e.Name())
		if to, err := os.Readlink(link); err == nil {
			if !filepath.IsAbs(to) {
				to = filepath.Join(dir, to)
			}
			links[to] = link
		}
	}
	return links
}

func attribute(dir, name string) string {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func base(link string) string {
	to, err := os.Readlink(link)
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}

// Identity returns the identity of the port at path on this machine, "" where sysfs does not know
// it (a pty).
func Identity(path string) string { return System{}.Identity(path) }

// Identity returns the identity of the port at path, "" where sysfs does not know it.
func (s System) Identity(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	info, _ := s.describe(filepath.Base(path))
	return info.Identity
}

// Resolve returns the path that a port has today on this machine.
func Resolve(name, identity string) (string, error) { return System{}.Resolve(name, identity) }

// Resolve returns the path that a port has today. name is a path, or an identity as List gives it;
// identity, where it is not empty, is what the port at that path was when it was seen last: it is
// looked for under any path before name is believed.
func (s System) Resolve(name, identity string) (string, error) {
	if strings.HasPrefix(name, "usb:") || strings.HasPrefix(name, "sys:") {
		identity, name = name, ""
	}
	if identity != "" {
		ports, err := s.List()
		if err != nil {
			return "", err
		}
		for _, p := range ports {
			if p.Identity == identity {
				return p.Path, nil
			}
		}
		return "", fmt.Errorf("no port has the identity %s; `tallywheel ports` lists those that are there: %w",
			identity, os.ErrNotExist)
	}
	return name, nil
}
