"""Timing on noisy machines: contestants take turns, and the best of several rounds counts."""

import resource
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


def peak_memory():
    """Peak resident bytes of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
