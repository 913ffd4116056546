"""Timing on noisy machines: contestants take turns, and the best of several rounds counts."""

import time


def best_of(contestants, rounds=7, calls=1):
    """`{name: seconds}` of callables; each is called so many times a round, in turn, so that all see the same noise."""
    for call in contestants.values():
        call()
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(rounds):
        for name, call in contestants.items():
            for _ in range(calls):
                start = time.perf_counter()
                call()
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def _status(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def resident_memory():
    """Resident bytes of this process now."""
    return _status("VmRSS")


def peak_memory():
    """Peak resident bytes of this process since the start, or since `forget_peak`."""
    return _status("VmHWM")


def forget_peak():
    """Begin a new peak (Linux)."""
    with open("/proc/self/clear_refs", "w") as switch:
        switch.write("5")
