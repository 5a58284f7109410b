"""python/time.sleep: wakes up each period and says how late. In SCHED_FIFO 80, where that is allowed, with a timer slack of 1 ns.

cyclic.py cyclic interval_us=N seconds=S
"""

import ctypes
import os
import sys
import time


def main():
    params = dict(a.split("=", 1) for a in sys.argv[2:])
    every, length = int(params["interval_us"]) * 1000, int(float(params["seconds"]) * 1e9)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(80))
    except PermissionError:
        pass
    ctypes.CDLL(None).prctl(29, 1, 0, 0, 0)  # PR_SET_TIMERSLACK
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.monotonic_ns()
    following, late, woken, missed = began + every, [], [], 0
    while following < began + length:
        time.sleep(max(following - time.monotonic_ns(), 0) / 1e9)
        woke = time.monotonic_ns()
        late.append(woke - following)
        woken.append(woke)
        following += every
        while following <= woke:
            following += every
            missed += 1
    took = time.monotonic_ns() - began
    print("done", flush=True)
    sys.stdin.read()
    late.sort()
    n = len(late)
    gaps = [b - a for a, b in zip(woken, woken[1:])]
    mean = sum(gaps) / max(len(gaps), 1)
    deviation = (sum((g - mean) ** 2 for g in gaps) / max(len(gaps) - 1, 1)) ** 0.5
    out = f"BenchmarkCyclic {n} {took / n} ns/op {missed} missed_releases {deviation / 1e3} period_stddev_us"
    for name, p in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("p9999", 0.9999)):
        if p < 0.99 or n * (1 - p) >= 5:
            out += f" {late[int(n * p)] / 1e3} latency_us_{name}"
    print(f"{out} {late[-1] / 1e3} latency_us_max", flush=True)


main()
