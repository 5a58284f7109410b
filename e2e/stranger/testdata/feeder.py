"""A stranger that sends frames to the recorder and keeps its own truth about them: what it handed
to the kernel, and what the kernel of the other side acknowledged.

It is called with a plan in JSON. Commands come on stdin, one word a line; each is answered by a line of JSON:

    go      send from now on
    hush    send nothing until the next go
    storm   connect again and again, with little between
    end     send nothing more, and end what is open as the carrier has it
    truth   write down the truth, and exit
"""

import errno
import fcntl
import json
import os
import random
import select
import socket
import struct
import sys
import termios
import time
import tty

from frames import Traffic

PATIENCE = 20.0  # seconds: nothing is waited for longer
AGAIN = 0.02  # seconds between two tries to connect


class Gone(Exception):
    """The other side is not there, or not any more."""


class TCP:
    """A connection. The kernel says how much of it the other kernel has acknowledged."""

    def __init__(self, sock):
        self.sock, self.written = sock, 0
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.base = self.counted()

    def counted(self):
        """tcpi_bytes_acked. At the beginning it may have counted the SYN."""
        info = self.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
        return struct.unpack_from("=Q", info, 120)[0]

    def acked(self):
        return min(self.counted() - self.base, self.written)  # the FIN counts, too

    def fds(self):
        return [self.sock]

    def send(self, data):
        try:
            n = self.sock.send(data)
        except BlockingIOError:
            return 0
        except OSError as e:
            raise Gone from e
        self.written += n
        return n

    def heard(self):
        """Something can be read: the recorder says nothing, so that is the end."""
        try:
            if not self.sock.recv(1000):
                raise Gone
        except BlockingIOError:
            pass
        except OSError as e:
            raise Gone from e

    def end(self, rude):
        """Ends the sending and waits until the other side has ended it, too; returns how that went."""
        how = "ended"
        deadline = time.monotonic() + PATIENCE
        try:
            if rude:  # an abort, once all has been acknowledged
                while self.acked() < self.written and time.monotonic() < deadline:
                    time.sleep(0.001)
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.final = self.acked()
                self.sock.close()
                return "aborted"
            self.sock.shutdown(socket.SHUT_WR)
            while True:
                if not select.select([self.sock], [], [], max(0, deadline - time.monotonic()))[0]:
                    how = "HANGS"
                    break
                if not self.sock.recv(1000):
                    break
        except OSError:
            how = "reset"
        self.final = self.acked()
        self.sock.close()
        return how

    def drop(self):
        self.final = self.acked()
        self.sock.close()


class Listening:
    """The recorder listens, we connect."""

    def __init__(self, plan):
        host, port = plan["address"].rsplit(":", 1)
        self.address = host, int(port)

    def connect(self, part=0):
        try:
            return TCP(socket.create_connection(self.address, timeout=PATIENCE))
        except OSError as e:
            raise Gone from e

    def close(self):
        pass


class All(Listening):
    """The recorder listens to everybody: we are several, each at an address of its own."""

    def connect(self, part=0):
        try:
            here = "127.0.0.%d" % (2 + part), 0
            return TCP(socket.create_connection(self.address, PATIENCE, source_address=here))
        except OSError as e:
            raise Gone from e


class Dialled(Listening):
    """The recorder dials, we accept."""

    def __init__(self, plan):
        super().__init__(plan)
        self.listener = socket.create_server(self.address, backlog=8)
        self.listener.settimeout(0.2)

    def connect(self, part=0):
        try:
            return TCP(self.listener.accept()[0])
        except OSError as e:
            raise Gone from e

    def close(self):
        self.listener.close()


class Datagrams:
    """A socket that sends datagrams. On one machine a refusal is known as soon as one is sent."""

    def __init__(self, address):
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.connect(address)
        self.written = 0

    def send(self, data):
        try:
            n = self.sock.send(data)
        except OSError as e:
            raise Gone from e
        if self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise Gone
        self.written += n
        return n

    def fds(self):
        return []

    def acked(self):
        return self.written

    def end(self, rude):
        self.drop()
        return "ended"

    def drop(self):
        self.final = self.written
        self.sock.close()


class UDP(Listening):
    def connect(self, part=0):
        return Datagrams(self.address)


class Line:
    """A virtual serial line. Its other end is held open: it takes bytes whether anybody reads them
    or not, as a wire does."""

    def __init__(self, path):
        self.master, self.slave = os.openpty()
        tty.setraw(self.slave)
        os.set_blocking(self.master, False)
        self.written = 0
        link = path + ".new"
        os.symlink(os.ttyname(self.slave), link)
        os.rename(link, path)

    def send(self, data):
        try:
            n = os.write(self.master, data)
        except BlockingIOError:
            return 0
        self.written += n
        return n

    def fds(self):
        return [self.master]

    def heard(self):
        os.read(self.master, 1000)

    def waiting(self):
        select.select([self.slave], [], [], 0)  # the ioctl does not count what is on its way to the line
        return struct.unpack("i", fcntl.ioctl(self.slave, termios.TIOCINQ, b"\0" * 4))[0]

    def end(self, rude):
        """Pulls the plug once all has been read. What was not is gone with the line."""
        deadline, empty = time.monotonic() + PATIENCE, 0
        while empty < 5 and time.monotonic() < deadline:
            empty = empty + 1 if self.waiting() == 0 else 0
            time.sleep(0.005)
        self.final = self.written - self.waiting()
        os.close(self.master)
        os.close(self.slave)
        return "ended" if empty else "HANGS"

    def rest(self):
        """Takes what nobody has read. It is all there is: the other end is closed by now."""
        os.set_blocking(self.slave, False)
        n, silent = 0, 0
        while silent < 5:
            try:
                n += len(os.read(self.slave, 65536))
            except BlockingIOError:
                silent += 1
                time.sleep(0.01)
        self.final = self.written - n


class Lines:
    def __init__(self, plan):
        self.path = plan["address"]

    def connect(self, part=0):
        return Line(self.path)

    def close(self):
        pass


CARRIERS = {"pty": Lines, "tcp-listen": Listening, "tcp-all": All, "tcp-dial": Dialled, "udp": UDP}


class Sender:
    """One device, or several behind one wire. It writes what it sends into the truth."""

    def __init__(self, plan, part, carrier, wires, frames):
        self.plan, self.part, self.carrier = plan, part, carrier
        self.wires, self.frames = wires, frames
        self.traffic = Traffic(plan["framing"], plan["seed"], plan["devices"], plan["faults"], part)
        self.rng = self.traffic.rng
        self.wire, self.rest, self.next_try = None, b"", 0.0
        self.bytes = 0
        if plan["carrier"] == "pty":
            self.connect()  # a port is there before anybody sends

    def connect(self):
        self.wire = self.carrier.connect(self.part)
        self.number, self.how = len(self.wires), []  # how it ends comes later
        self.wires.append((self.wire, self.how))

    def lose(self):
        """The wire is dead. What was half sent is given up: a device goes on with its next frame."""
        self.wire.drop()
        self.how.append("lost")
        self.wire, self.rest = None, b""

    def hang_up(self, rude=False):
        if self.wire:
            self.how.append(self.wire.end(rude))
            self.wire, self.rest = None, b""

    def frame(self):
        """The next frame is on its way: from here on it has a place in the truth."""
        wire, valid, number = self.traffic.next()
        at = self.wire.written + len(self.rest)
        self.frames.append([self.number, at, valid, number or (0, 0), time.time(), wire])
        self.rest += wire

    def push(self):
        """Sends what the kernel takes. False if that is nothing."""
        if not self.wire:
            if time.monotonic() < self.next_try:
                return False
            try:
                self.connect()
            except Gone:
                self.next_try = time.monotonic() + AGAIN
                return False
        if not self.rest:
            for _ in range(1 if self.plan["interval"] else self.rng.randint(1, 4)):
                self.frame()
        try:
            n = self.wire.send(self.rest)
        except Gone:
            if self.plan["carrier"] == "udp":  # refused: this datagram and nothing else
                for f in self.frames[::-1]:
                    if f[0] != self.number or f[1] < self.wire.written:
                        break
                    f[0] = -1
                self.rest = b""
                return False
            self.lose()
            return False
        self.bytes += n
        self.rest = self.rest[n:]
        return n > 0

    def fds(self):
        return self.wire.fds() if self.wire else []

    def heard(self):
        try:
            self.wire.heard()
        except Gone:
            self.lose()

    def storm_once(self):
        """One connection: in order, without a word, with a frame half sent, or with nothing sent at all."""
        deadline = time.monotonic() + PATIENCE
        frames = self.rng.choice((0, 1, 3, 30))
        while (frames > 0 or not self.wire or self.rest) and time.monotonic() < deadline:
            if self.push():
                frames -= 1
            else:
                time.sleep(0.002)
            if self.rng.random() < 0.02:
                break
        self.hang_up(rude=self.rng.random() < 0.25)

    def finish(self):
        """The frame that is half sent is completed, unless nobody reads any more."""
        stuck = 0
        while self.rest and self.wire and stuck < 500:
            if not self.push():
                stuck += 1
                time.sleep(0.002)


class Feeder:
    """Senders, which take turns."""

    def __init__(self, plan):
        self.plan, self.rng = plan, random.Random(plan["seed"])
        self.carrier = CARRIERS[plan["carrier"]](plan)
        self.wires, self.frames = [], []  # the truth: connections; frames with their places in them
        parts = 3 if plan["carrier"] == "tcp-all" else 1
        self.senders = [Sender(plan, n, self.carrier, self.wires, self.frames) for n in range(parts)]

    def sent(self):
        return sum(s.bytes for s in self.senders)

    def run_for(self, seconds):
        """Sends at the planned rate, which bursts do not exceed by more than 50 ms."""
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            self.budget = min(self.budget + (now - self.last) * self.plan["rate"], self.plan["rate"] * 0.05)
            self.last = now
            while self.budget > 0:
                before = self.sent()
                if not any([s.push() for s in self.senders]):
                    break
                self.budget -= self.sent() - before
            fds = {fd: s for s in self.senders for fd in s.fds()}
            ready = select.select([0, *fds], [], [], 0.004)[0]
            for fd in ready:
                if fd in fds:
                    fds[fd].heard()
            if 0 in ready:
                return

    def keep_time(self, seconds):
        """Sends a frame in each interval; what passes while nothing is sent is left out."""
        interval, end = self.plan["interval"], time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            fds = {fd: s for s in self.senders for fd in s.fds()}
            ready = select.select([0, *fds], [], [], max(0, min(self.due, end) - now))[0]
            for fd in ready:
                if fd in fds:
                    fds[fd].heard()
            if 0 in ready:
                return
            if time.monotonic() >= self.due:
                for s in self.senders:
                    s.push()
                while self.due <= time.monotonic():
                    self.due += interval

    def storm(self):
        """Reconnects, one after the other."""
        slow = self.plan["carrier"] in ("pty", "tcp-dial")
        for _ in range(8 if slow else 80):
            self.rng.choice(self.senders).storm_once()

    def finish(self):
        for s in self.senders:
            s.finish()
        self.carrier.close()
        if self.plan["carrier"] != "pty":  # a line goes on being there
            for s in self.senders:
                s.hang_up()

    def truth(self):
        if self.plan["carrier"] == "pty" and (line := self.senders[0].wire):
            line.rest()
            self.senders[0].how.append("read" if not line.written - line.final else "left")
        wires = [{"written": w.written, "acked": w.final, "end": how[0]} for w, how in self.wires]
        names = "wire", "at", "valid", "device", "number", "time", "data"
        frames = [
            dict(zip(names, (wire, at, valid, *number, when, data.hex())))
            for wire, at, valid, number, when, data in self.frames
        ]
        return {"wires": wires, "frames": frames}

    def obey(self):
        sending = False
        self.budget, self.last = 0.0, time.monotonic()
        self.due = self.last
        while True:
            if sending:
                (self.keep_time if self.plan["interval"] else self.run_for)(0.5)
            if not select.select([0], [], [], 0 if sending else PATIENCE * 3)[0]:
                if sending:
                    continue
                sys.exit("no command came")
            word = os.read(0, 100).decode().strip()  # whoever commands waits for each answer
            if word == "go":
                sending, self.last = True, time.monotonic()
                while self.plan["interval"] and self.due < self.last:
                    self.due += self.plan["interval"]
            elif word == "hush":
                sending = False
            elif word == "storm":
                self.storm()
                self.last = time.monotonic()
            elif word == "end":
                sending = False
                self.finish()
            elif word == "truth":
                with open(self.plan["truth"], "w") as f:
                    json.dump(self.truth(), f)
                self.answer()
                return
            else:
                sys.exit("no such command: %r" % word)
            self.answer()

    def answer(self):
        print(json.dumps({"frames": len(self.frames), "bytes": self.sent()}), flush=True)


if __name__ == "__main__":
    Feeder(json.loads(sys.argv[1])).obey()
