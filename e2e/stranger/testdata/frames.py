"""The framings, each written from its public description alone, and traffic in them.

Run by itself it holds its framings against those of other people (pymodbus, pynmea2), where they
are installed.
"""

import random
import struct
import sys


def crc16(data, poly, crc, reflected):
    """The CRC as its definition has it, bit by bit."""
    for byte in data:
        if reflected:
            crc ^= byte
            for _ in range(8):
                crc = crc >> 1 ^ poly if crc & 1 else crc >> 1
        else:
            crc ^= byte << 8
            for _ in range(8):
                crc = (crc << 1 ^ poly if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc


TABLE = [crc16(bytes([n]), 0xA001, 0, True) for n in range(256)]


def crc_modbus(data):
    """CRC-16/MODBUS: reflected 8005, begun with FFFF. Low byte first on the wire."""
    crc = 0xFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc


def with_modbus(data):
    return data + struct.pack("<H", crc_modbus(data))


def with_ccitt(data):
    """CRC-16/CCITT-FALSE: 1021, begun with FFFF, high byte first on the wire."""
    return data + struct.pack(">H", crc16(data, 0x1021, 0xFFFF, False))


def cobs(data):
    """Cheshire and Baker: every block is its length + 1 and bytes that are not zero; a block of 254
    has no zero behind it."""
    out, block = bytearray(), bytearray()
    fresh = True  # a block is due, be it an empty one
    for byte in data:
        fresh = True
        if byte:
            block.append(byte)
            if len(block) == 254:
                out += b"\xff" + block
                block.clear()
                fresh = False
        else:
            out += bytes([len(block) + 1]) + block
            block.clear()
    if fresh:
        out += bytes([len(block) + 1]) + block
    return bytes(out) + b"\0"


def slip(data):
    """RFC 1055: END is C0; C0 is sent as DB DC, DB as DB DD."""
    return data.replace(b"\xdb", b"\xdb\xdd").replace(b"\xc0", b"\xdb\xdc") + b"\xc0"


def nmea(body):
    """A sentence of NMEA 0183: the checksum is the XOR of what stands between $ and *."""
    total = 0
    for c in body:
        total ^= c
    return b"$" + body + b"*%02X\r\n" % total


def tally128(device, number, payload):
    """As `go doc ./frame/tally128` draws it."""
    head = struct.pack("<BBBBIIQq", 0xA5, 0x5A, 1, 0, device, 1, number, number * 1000)
    return with_modbus((head + payload).ljust(126, b"\0"))


class Traffic:
    """Frames without end; a seed makes the same ones again. No two are alike."""

    def __init__(self, framing, seed, devices=1, faults=False, part=0):
        """Of the same framing and seed, parts 0 to 2 have no frame and no device in common."""
        self.make = getattr(self, "make_" + framing.replace("-", "_"))
        self.rng, self.devices = random.Random(seed + (part << 32)), devices
        self.faults = faults and framing in ("tally128", "cobs-crc", "slip-crc", "nmea", "line")
        self.made, self.asked, self.numbers = part * 5 << 16, None, {}
        self.first = 1 + part * 10_000  # device

    def next(self):
        """Bytes, whether they are a valid frame, and the device and number that they carry, if they do."""
        self.made += 1
        wire, number = self.make(self.made)
        if self.faults and self.rng.random() < 0.01:
            return self.spoilt(wire), False, number
        return wire, True, number

    def spoilt(self, wire):
        """The frame with a damage that its check finds, and by which no other frame begins or ends."""
        if self.make == self.make_line:  # which has a check only where it looks like a sentence
            return nmea(b"GPXXX,%d" % self.made)[:-3] + b"Z\r\n"
        at = len(wire) // 2
        wrong = next(b for b in b"xyzw" if b != wire[at])
        return wire[:at] + bytes([wrong]) + wire[at + 1 :]

    def some(self, low, high):
        """Random content, now and then of bytes that framings stuff."""
        n = self.rng.randint(low, high)
        if self.rng.random() < 0.2:
            return bytes(self.rng.choice(b"\x00\xc0\xdb\xff\x24\x0a\xa5\x5a") for _ in range(n))
        return self.rng.randbytes(n)

    def content(self, serial):
        high = 700 if self.rng.random() < 0.05 else 150
        return struct.pack(">I", serial) + self.some(0, high)

    def make_tally128(self, serial):
        device = self.first + self.rng.randrange(self.devices)
        number = self.numbers.get(device, 0)
        self.numbers[device] = number + 1
        if self.faults and number and self.rng.random() < 0.01:  # one is never sent
            number += 1
            self.numbers[device] = number + 1
        return tally128(device, number, struct.pack(">I", serial) + self.some(0, 94)), (device, number)

    def make_cobs(self, serial):
        return cobs(self.content(serial)), None

    def make_cobs_crc(self, serial):
        return cobs(with_ccitt(self.content(serial))), None

    def make_slip_crc(self, serial):
        return slip(with_modbus(self.content(serial))), None

    def make_length(self, serial):
        content = with_modbus(self.content(serial))
        return struct.pack(">H", len(content)) + content, None

    def make_line(self, serial):
        text = bytes(self.rng.randint(0x20, 0x7E) for _ in range(self.rng.randint(0, 120)))
        return b"%d %s%s\n" % (serial, text.replace(b"*", b"+"), self.rng.choice((b"", b"\r"))), None

    def make_nmea(self, serial):
        fix = b"GPGGA,%02d%02d%02d.%03d,5321.6802,N,00630.3372,W,1,8,1.03,61.7,M,55.2,M,,%04d"
        kind = self.rng.choice((fix, b"GNTXT,%02d,%02d,%02d,%03d,%d"))
        a, b, c = serial % 24, serial // 24 % 60, serial // 1440 % 60
        return nmea(kind % (a, b, c, serial % 1000, serial)), None

    def make_modbus(self, serial):
        """What is on a bus: a request, then its answer. Unit and register say which one it is."""
        if self.asked:
            unit, function, register, count = self.asked
            self.asked = None
            if function == 16:
                return with_modbus(struct.pack(">BBHH", unit, 16, register, count)), None
            data = struct.pack(">I", serial).ljust(2 * count, b"\0")[: 2 * count]
            data = data[:4] + self.rng.randbytes(2 * count - 4)
            return with_modbus(struct.pack(">BBB", unit, 3, 2 * count) + data), None
        unit, function = 1 + (serial >> 16) * 16 + self.rng.randrange(16), self.rng.choice((3, 16))
        register, count = serial & 0xFFFF, self.rng.randint(2, 40)
        self.asked = unit, function, register, count
        if function == 3:
            return with_modbus(struct.pack(">BBHH", unit, 3, register, count)), None
        head = struct.pack(">BBHHB", unit, 16, register, count, 2 * count)
        return with_modbus(head + self.rng.randbytes(2 * count)), None

    def make_raw(self, serial):
        """Blocks of 48 bytes, which are found again in whatever chunks they come."""
        return struct.pack(">4sI", b"\xfeRAW", serial) + self.rng.randbytes(40), None


def against_others():
    """Every framing as others write and read it. Returns what was compared."""
    done = []
    assert crc_modbus(b"123456789") == 0x4B37, "the check value of the CRC catalogue"
    assert with_ccitt(b"123456789")[-2:] == b"\x29\xb1", "the check value of the CRC catalogue"
    assert cobs(b"") == b"\x01\x00" and cobs(b"\x11\x22\x00\x33") == b"\x03\x11\x22\x02\x33\x00"
    assert cobs(bytes(range(1, 255))) == b"\xff" + bytes(range(1, 255)) + b"\0"
    assert cobs(bytes(range(0, 255))) == b"\x01\xff" + bytes(range(1, 255)) + b"\0"
    assert cobs(bytes(range(1, 256))) == b"\xff" + bytes(range(1, 255)) + b"\x02\xff\0"
    done.append("examples")
    try:
        from pymodbus.framer import FramerRTU
        from pymodbus.pdu import DecodePDU

        traffic = Traffic("modbus", 1)
        reads, answers = FramerRTU(DecodePDU(True)), FramerRTU(DecodePDU(False))
        for n in range(200):
            wire, _, _ = traffic.next()
            framer = reads if n % 2 == 0 else answers
            used, pdu = framer.handleFrame(wire, 0, 0)
            assert used == len(wire) and pdu and pdu.function_code == wire[1], wire.hex()
            assert framer.buildFrame(pdu) == wire, wire.hex()
        done.append("pymodbus")
    except ImportError:
        pass
    try:
        import pynmea2

        traffic = Traffic("nmea", 1)
        for _ in range(200):
            text = traffic.next()[0].decode()
            assert pynmea2.parse(text, check=True).render(newline=True) == text, text
        done.append("pynmea2")
    except ImportError:
        pass
    return done


if __name__ == "__main__":
    print(" ".join(against_others()))
    sys.exit(0)
