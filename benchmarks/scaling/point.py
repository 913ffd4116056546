"""Measure one point in a separate process: `python -m scaling.point POINT.json RESULT.json`.

The predicted memory is written first, so that it is also known for nets that do not fit.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.errors import MemoryLimitError
from meshnn.files import write_whole
from meshnn.mesh import Mesh
from meshnn.topology import Topology
from scaling.peers import PEERS, warm_up
from scaling.study import OURS, Graph, Point

__all__ = ["measure", "prediction_file", "weights_of"]

#: Total seconds of the calls of a point, and the maximum number of calls.
BUDGET, MOST = 0.5, 1000
#: Longer calls are not repeated.
LONG = 4.0


def prediction_file(result: Path) -> Path:
    """Return the file of the prediction of a point."""
    return result.with_suffix(".prediction")


def weights_of(t: Topology) -> NDArray[np.float32]:
    """Return the weights of all contestants, small enough for bounded states over many ticks."""
    spread = 1.0 / np.sqrt(max(t.n_edges / max(t.n_neurons - t.n_clamped, 1), 1.0))
    found: NDArray[np.float32] = np.random.default_rng(1).standard_normal(t.n_edges, np.float32) * np.float32(spread)
    return found


def _ours(mesh: Mesh, X: Any, y: Any, method: str) -> Callable[[], float | None]:
    def step() -> float:
        return float(mesh.gradient(X, y, gradient=method, n_jobs=1)[0])

    return step


def measure(point: Point, result: Path | None = None) -> dict[str, Any]:
    """Measure seconds and bytes of a gradient, and return them with the predictions."""
    ours = point.contestant in OURS
    if ours:  # loads the kernels
        small = Mesh(Graph("mesh", 2, 3, 2).build(), 2, random_state=0)
        small.gradient(np.zeros((2, 2)), [0, 1], gradient=point.contestant, n_jobs=1)
    else:
        warm_up(point.contestant)
    topology, rng = point.graph.build(), np.random.default_rng(0)
    X = rng.standard_normal((point.batch, topology.n_inputs), np.float32)
    y = rng.integers(0, topology.n_outputs, point.batch)
    y[: topology.n_outputs] = np.arange(topology.n_outputs)[: point.batch]
    weights = weights_of(topology)
    found: dict[str, Any] = {
        "status": "done", "neurons": topology.n_neurons, "edges": topology.n_edges,
    }  # fmt: skip
    _forget_peak()
    before, start = _memory("VmRSS"), time.perf_counter()
    if ours:
        mesh = Mesh(topology, point.ticks, "relu", weights=weights)
        decision = mesh._engines.decide(point.ticks, point.batch, n_jobs=1)
        cost = decision.cost(point.contestant)
        found |= {"multiply_adds": cost.multiply_adds, "bytes": cost.bytes, "chosen": decision.chosen}
        if result is not None:
            write_whole(prediction_file(result), [json.dumps(found).encode()])
        step = _ours(mesh, X, y, point.contestant)
    else:
        step = PEERS[point.contestant](
            topology, point.graph.kind == "layered", point.ticks, X, y, weights
        )  # fmt: skip
    loss = step()
    first = time.perf_counter() - start
    best, spent, calls = float("inf"), 0.0, 0
    while calls < MOST and (calls < 3 or spent < BUDGET) and spent < LONG:
        start, worked = time.perf_counter(), time.process_time()
        step()
        took, worked = time.perf_counter() - start, time.process_time() - worked
        # with one thread, processor time equals elapsed time on an idle machine
        best, spent, calls = min(best, took, worked), spent + took, calls + 1
    found |= {"seconds": best, "first": first, "calls": calls, "loss": loss}
    return found | {"memory": max(_memory("VmHWM") - before, 0)}


def _memory(field: str) -> int:
    """Return a memory field of this process in bytes on Linux, else 0."""
    with suppress(OSError, StopIteration), open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
    return 0


def _forget_peak() -> None:
    with suppress(OSError), open("/proc/self/clear_refs", "w") as switch:
        switch.write("5")


def main(arguments: list[str]) -> None:
    """Measure a point and write the result or the error."""
    given, result = map(Path, arguments)
    point = Point.of(json.loads(given.read_text()))
    try:
        found = measure(point, result)
    except (MemoryError, MemoryLimitError) as error:
        found = {"status": "did not fit", "note": str(error) or "out of memory"}
    except Exception as error:
        # torch and jax have their own out-of-memory errors
        words = " ".join(str(error).split())
        short = any(sign in words.lower() for sign in ("out of memory", "can't allocate", "resource_exhausted"))
        found = {"status": "did not fit" if short else "failed", "note": f"{type(error).__name__}: {words[:300]}"}
    write_whole(result, [json.dumps(found).encode()])


def _die_with_the_parent() -> None:
    """End this process when the study ends (Linux), because it may hold gigabytes."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


if __name__ == "__main__":
    _die_with_the_parent()
    main(sys.argv[1:])
