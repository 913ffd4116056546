"""Run the numerical tests with other instruction sets, which change the order of sums, and under load.

    python tests/steady.py [--times 3] [--only NAME ...] [-k EXPRESSION] [FILE ...]

No test may depend on the last digits of a sum, on the number of threads or on timing. Each variant changes one of
these; a table shows the results, and the exit code is 1 if a test failed.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = ["tiles", "calls", "gradient", "parameters", "mesh", "elementary", "losses",
         "multilabel", "levenberg", "training", "ties_learned", "structure", "threads", "checkpoint",
         "estimators", "package", "streams", "search", "sizes", "cli_models", "time", "stream",
         "stream_structure", "kalman", "standardise", "online", "networks", "sequences"]  # fmt: skip
BUSY = 4
#: Instruction sets and the OpenBLAS names of such processors. Build them with `cmake.define.MESHNN_SETS=all`.
ISAS = {"x86-64-v2": "Nehalem", "x86-64-v3": "Haswell", "x86-64-v4": "SkylakeX"}


def variants():
    """Return (environment, processors, whether other processes keep the machine busy) by name."""
    cores = sorted(os.sched_getaffinity(0))
    return {
        "as it is": ({}, cores, False),
        # BLAS selects its kernels by processor, like the core
        **{isa: ({"MESHNN_ISA": isa, "OPENBLAS_CORETYPE": blas}, cores, False) for isa, blas in ISAS.items()},
        "one thread": ({}, cores[:1], False),
        "two threads": ({}, cores[:2], False),
        "under load": ({}, cores, True),
    }


def run(variant, arguments):
    """Return the numbers of passed and failed tests, the seconds and the output of pytest."""
    environment, cores, load = variant
    own = os.environ | {"PYTHONPATH": str(ROOT / "src")} | environment
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *arguments]
    spin = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(spin) for _ in range(BUSY)] if load else []
    begin = time.monotonic()
    try:
        done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=False,
                              preexec_fn=lambda: os.sched_setaffinity(0, cores))  # fmt: skip
    finally:
        for process in busy:
            process.kill()
            process.wait()
    found = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|error)", done.stdout)}
    failed = found.get("failed", 0) + found.get("error", 0)
    if done.returncode and not failed:
        failed = 1  # pytest did not start
    return found.get("passed", 0), failed, time.monotonic() - begin, done.stdout + done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=1, help="runs of each variant")
    parser.add_argument("--only", nargs="+", choices=list(variants()), help="some of the variants")
    parser.add_argument("-k", help="some of the tests, as for pytest")
    parser.add_argument("files", nargs="*", help="files of tests instead of those that depend on numbers")
    given = parser.parse_args()
    files = given.files or [str(next((ROOT / "tests").rglob(f"test_{name}.py"))) for name in FILES]
    arguments = [*files, *(["-k", given.k] if given.k else [])]
    broken = 0
    print(f"{'variant':<20} {'run':>3} {'passed':>7} {'failed':>7} {'seconds':>8}")
    for name in given.only or variants():
        for count in range(1, given.times + 1):
            passed, failed, seconds, text = run(variants()[name], arguments)
            print(f"{name:<20} {count:>3} {passed:>7} {failed:>7} {seconds:>8.0f}", flush=True)
            broken += failed
            if failed:
                print("\n".join(line for line in text.splitlines() if line.startswith(("FAILED", "ERROR", "E  "))))
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
