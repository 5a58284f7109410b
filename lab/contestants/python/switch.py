"""python/…: two threads, or two tasks of asyncio, that wake each other in turns; and the memory of one that waits.

switch.py switch how=thread|asyncio seconds=S
"""

import asyncio
import os
import sys
import threading
import time

WAITERS, TASKS = 200, 2000


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def ready():
    print("ready", flush=True)
    sys.stdin.readline()
    return time.monotonic()


def done(began):
    took = time.monotonic() - began
    print("done", flush=True)
    sys.stdin.read()
    return took


def threads(length):
    before = resident()
    for _ in range(WAITERS):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    each = (resident() - before) / WAITERS
    mine, others = threading.Semaphore(0), threading.Semaphore(0)

    def second():
        while True:
            others.acquire()
            mine.release()

    threading.Thread(target=second, daemon=True).start()
    began, n = ready(), 0
    while time.monotonic() - began < length:
        for _ in range(64):
            others.release()
            mine.acquire()
        n += 128
    return n, done(began), each


async def tasks(length):
    before = resident()
    forever = asyncio.Event()
    waiting = [asyncio.create_task(forever.wait()) for _ in range(TASKS)]
    await asyncio.sleep(0)
    each = (resident() - before) / TASKS
    mine, others = asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def second():
        while True:
            await others.acquire()
            mine.release()

    other = asyncio.create_task(second())
    began, n = ready(), 0
    while time.monotonic() - began < length:
        for _ in range(64):
            others.release()
            await mine.acquire()
        n += 128
    took = done(began)
    other.cancel()
    forever.set()
    await asyncio.gather(*waiting)
    return n, took, each


def main():
    params = dict(a.split("=", 1) for a in sys.argv[2:])
    length = float(params["seconds"])
    n, took, each = asyncio.run(tasks(length)) if params["how"] == "asyncio" else threads(length)
    print(f"BenchmarkSwitch {n} {took * 1e9 / n} ns/op {each} waiting_bytes", flush=True)


main()
