"""Measurements in separate processes: start-up, first gradient, memory of a very large batch."""

import json
import os
import resource
import subprocess
import sys
import tempfile
import textwrap

IMPORT = """
import time
start = time.perf_counter()
from meshnn import Mesh, Topology, load
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


FIT = """
import sys
from meshnn.cli import main
main(["fit", sys.argv[1], "--target", "species", "--max-epochs", "2", "--json", "--out", sys.argv[2]])
"""

IRIS = os.path.join(os.path.dirname(__file__), "..", "examples", "iris.csv")


def start_up(rounds=10):
    """Return the processor time of whole processes in seconds, best of some rounds; also of scikit-learn alone."""
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "iris.mesh")
        subprocess.run([sys.executable, "-c", FIT, IRIS, model], capture_output=True, check=True)
        commands = {
            "meshnn info": ["-m", "meshnn", "info", model],
            "meshnn predict, 150 rows": ["-m", "meshnn", "predict", model, IRIS],
            "from meshnn import MeshClassifier": ["-c", "from meshnn import MeshClassifier"],
            "import sklearn.base": ["-c", "import sklearn.base"],
        }
        return {name: min(_processor_time(command) for _ in range(rounds)) for name, command in commands.items()}


def _processor_time(arguments):
    def spent():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before = spent()
    subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
    return spent() - before


def _child(program):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def measure(quick=False):
    """Return seconds of the import and of the first gradient, and the memory of a million samples."""
    rounds = 3 if quick else 5
    return {
        "import, s": min(float(_child(IMPORT)) for _ in range(rounds)),
        "import and first gradient, s": min(float(_child(FIRST)) for _ in range(rounds)),
        "start-up": start_up(3 if quick else 10),
        "batch of 1,000,000": json.loads(_child(MEMORY)),
    }
