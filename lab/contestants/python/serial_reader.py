"""pyserial: a thread for each port that asks for what is there, at least a byte, and takes frames. It checks no CRC.

serial_reader.py serial paths=A,B,…
"""

import sys
import threading
import time

import serial

FRAME, AT_TIME, AT_CRC = 128, 20, 126


def whole(frame):
    """Whether a frame has its CRC-16/MODBUS."""
    crc = 0xFFFF
    for b in frame[:AT_CRC]:
        crc ^= b
        for _ in range(8):
            crc = crc >> 1 ^ 0xA001 if crc & 1 else crc >> 1
    return crc == int.from_bytes(frame[AT_CRC:FRAME], "little")


class Reader(threading.Thread):
    def __init__(self, path):
        super().__init__(daemon=True)
        self.port = serial.Serial(path, 115200)
        self.frames, self.latencies, self.longest = 0, [], 0

    def run(self):
        held = b""
        while True:
            held += self.port.read(max(1, self.port.in_waiting))
            now, at = time.time_ns(), 0
            while len(held) - at >= FRAME:
                if held[at] != 0xA5 or held[at + 1] != 0x5A:
                    at += 1
                    continue
                late = now - int.from_bytes(held[at + AT_TIME : at + AT_TIME + 8], "little", signed=True)
                # the time of a damaged frame is none: one that would be the longest is looked at
                if 0 <= late <= self.longest or whole(held[at : at + FRAME]):
                    self.latencies.append(late)
                    self.longest = max(self.longest, late)
                self.frames += 1
                at += FRAME
            held = held[at:]


def main():
    params = dict(a.split("=", 1) for a in sys.argv[2:])
    readers = [Reader(path) for path in params["paths"].split(",")]
    for r in readers:
        r.start()
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.monotonic_ns()
    sys.stdin.read()
    took = time.monotonic_ns() - began
    n = sum(r.frames for r in readers)
    ns = sorted(x for r in readers for x in r.latencies)
    if n == 0:
        sys.exit("it did nothing")
    out = f"BenchmarkSerial {n} {took / n} ns/op {n * FRAME * 1e3 / took} MB_per_s"
    for name, p in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("p9999", 0.9999)):
        if p < 0.99 or len(ns) * (1 - p) >= 5:
            out += f" {ns[int(len(ns) * p)] / 1e3} latency_us_{name}"
    print(f"{out} {ns[-1] / 1e3} latency_us_max", flush=True)


main()
