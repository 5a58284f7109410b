package serial_test

import (
	"fmt"

	"github.com/tallywheel/tallywheel/serial"
)

func ExampleConfig_BytesPerSecond() {
	fmt.Println(serial.Config{Baud: 115200}.BytesPerSecond(), "bytes a second at 115200 8N1")
	fmt.Println(serial.Config{Baud: 19200, Parity: serial.EvenParity}.CharBits(), "bits a character with parity")
	// Output:
	// 11520 bytes a second at 115200 8N1
	// 11 bits a character with parity
}
