"""What shows only in a process of its own: start-up, first gradient, memory of a very large batch."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap

IMPORT = """
import time
start = time.perf_counter()
import meshnn
print(time.perf_counter() - start)
"""

FIRST = """
import time
start = time.perf_counter()
import numpy as np
from meshnn import Mesh, Topology
m = Mesh(Topology.mesh(2, 5, 2), random_state=0)
m.gradient(np.zeros((10, 2)), np.zeros(10, int))
print(time.perf_counter() - start)
"""

MEMORY = """
import json, numpy as np
from meshnn import Mesh, Topology
def field(name):
    return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith(name))
m = Mesh(Topology.mesh(32, 50, 10, density=0.2, random_state=0), 2, random_state=0)
rng = np.random.default_rng(0)
m.gradient(np.zeros((10, 32), np.float32), np.zeros(10, int))
X = rng.standard_normal((1_000_000, 32), dtype=np.float32)
y = rng.integers(0, 10, 1_000_000)
open("/proc/self/clear_refs", "w").write("5")  # forget the peak so far
before = field("VmRSS")
m.gradient(X, y)
print(json.dumps({"adds, MiB": field("VmHWM") - before, "data, MiB": (X.nbytes + y.nbytes) / 2**20}))
"""


def _child(program, **environment):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True, text=True, check=True, env=os.environ | environment,
    )  # fmt: skip
    return done.stdout.strip(), done.stderr


def measure(quick=False):
    """Seconds to import, to a first gradient with an empty and a warm cache; memory of a million samples."""
    rounds = 3 if quick else 5
    with tempfile.TemporaryDirectory() as cache:
        cold, said = _child(FIRST, NUMBA_CACHE_DIR=cache, MESHNN_QUIET="")
        warm = min(float(_child(FIRST, NUMBA_CACHE_DIR=cache)[0]) for _ in range(rounds))
    return {
        "import, s": min(float(_child(IMPORT)[0]) for _ in range(rounds)),
        "import and first gradient, empty cache, s": float(cold),
        "on screen meanwhile": said.strip(),
        "import and first gradient, warm cache, s": warm,
        "batch of 1,000,000": json.loads(_child(MEMORY)[0]),
    }
