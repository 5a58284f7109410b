package doctor

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// uart looks at how the bytes of a UART come into memory: by DMA or by an interrupt for each
// trigger of the FIFO; nothing if the port is none, such as that of a USB adapter.
func (k Kernel) uart(port string) (all []Finding) {
	tty := "/sys/class/tty/" + port
	clock, there := k.read(tty + "/uartclk")
	if !there {
		return nil
	}
	f := Finding{
		Area: "serial", Name: port + ", receive DMA", State: Good, Wanted: "a channel, for lines above 500 kbit/s",
		Why: fmt.Sprintf("without it the CPU fetches what is in the FIFO of %s bytes (UART clock %s Hz) at each interrupt, and a late one loses bytes",
			k.or(tty+"/xmit_fifo_size", "unknown"), clock),
	}
	channels := k.glob("/sys/class/dma/dma*chan*")
	rx, err := os.Readlink(k.path(tty + "/device/dma:rx"))
	switch {
	case err == nil:
		f.Found = filepath.Base(rx) + k.share(port, filepath.Base(rx))
	case len(channels) == 0:
		f.Found = "none: this machine shows no DMA engine, so its interrupts do it"
	default:
		f.State = Poor
		f.Found = fmt.Sprintf("none, of %d channels of the machine", len(channels))
		f.How = `give the UART's node of the device tree dmas = <…> and dma-names = "rx", "tx", with the request line of the board's manual, and a driver built with DMA (CONFIG_SERIAL_8250_DMA, CONFIG_SERIAL_AMBA_PL011); below 500 kbit/s leave it`
	}
	return []Finding{f}
}

// share says how many of the received bytes came by a channel, as far as the kernel tells both.
func (k Kernel) share(port, channel string) string {
	moved, err := strconv.ParseUint(k.or("/sys/class/dma/"+channel+"/bytes_transferred", ""), 10, 64)
	if err != nil {
		return ""
	}
	text := fmt.Sprintf(", %d bytes since it is used", moved)
	if rx := k.received(port); rx > 0 {
		text += fmt.Sprintf(", %.0f %% of %d received", 100*float64(min(moved, rx))/float64(rx), rx)
	}
	return text
}

// received is what a port has received by the books of its driver, which root alone may read; 0 if
// they do not say.
func (k Kernel) received(port string) uint64 {
	books, _ := k.read("/proc/tty/driver/serial")
	lines := bufio.NewScanner(strings.NewReader(books))
	for lines.Scan() {
		number, rest, _ := strings.Cut(lines.Text(), ":")
		if "ttyS"+number != port {
			continue
		}
		for _, field := range strings.Fields(rest) {
			if n, ok := strings.CutPrefix(field, "rx:"); ok {
				rx, _ := strconv.ParseUint(n, 10, 64) // 0 is what is said above
				return rx
			}
		}
	}
	return 0
}

// or is what a file says, or something else if it cannot be read.
func (k Kernel) or(name, otherwise string) string {
	if v, there := k.read(name); there {
		return v
	}
	return otherwise
}
