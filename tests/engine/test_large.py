"""Large graphs: planning time is linear, memory is predicted, and blockwise computation gives the same sums."""

import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from meshnn import Mesh, Topology
from meshnn.plan import METHODS, lists
from meshnn.plan.limits import PlanningLimits
from meshnn.topology import reach


def grid(side, n_inputs=20, n_outputs=10):
    """Return the edges of a square grid, in which every neuron is linked to its four neighbours."""
    rng, n, first = np.random.default_rng(0), side * side, n_inputs
    y, x = np.divmod(np.arange(n), side)
    edges = []
    for dy, dx in ((0, 1), (1, 0), (0, -1), (-1, 0)):
        at = np.flatnonzero((y + dy >= 0) & (y + dy < side) & (x + dx >= 0) & (x + dx < side))
        edges.append(np.stack([first + at, first + at + dy * side + dx], axis=1))
    ends = first + rng.permutation(n)
    edges.append(np.stack([np.arange(n_inputs), ends[:n_inputs]], axis=1))
    edges.append(np.stack([ends[-n_outputs:], first + n + np.arange(n_outputs)], axis=1))
    return Topology(n_inputs, n, n_outputs, np.concatenate(edges), bias=False)


def wide(hidden=2000, fan_in=40, n_inputs=300, n_outputs=5):
    """Return a graph whose hidden neurons read some inputs each and feed one output."""
    rng = np.random.default_rng(1)
    source = np.argsort(rng.random((hidden, n_inputs)), axis=1)[:, :fan_in]
    into = np.stack([source.ravel(), np.repeat(n_inputs + np.arange(hidden), fan_in)], axis=1)
    out = np.stack([n_inputs + np.arange(hidden), n_inputs + hidden + rng.integers(0, n_outputs, hidden)], axis=1)
    return Topology(n_inputs, hidden, n_outputs, np.concatenate([into, out]), bias=False)


def random_graphs(count=60):
    rng = np.random.default_rng(2)
    for _ in range(count):
        sizes = rng.integers(1, 5), rng.integers(0, 30), rng.integers(1, 5)
        n = int(sum(sizes)) + 1
        pairs = np.unique(rng.integers(0, n, (int(rng.integers(0, 4 * n)), 2)), axis=0)
        yield Topology(*map(int, sizes), pairs), int(rng.integers(1, 12))


GRAPHS = {
    "grid": (lambda: grid(25), 8),
    "mesh": (lambda: Topology.mesh(20, 300, 5, density=0.05, random_state=0), 5),
    "wide": (wide, 2),
    "layered": (lambda: Topology.layered([40, 200, 200, 10]), 3),
}


def resident():
    """Return the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memory(graph, method):
    """Return the peak memory of planning and running, relative to the prediction."""
    make, ticks = GRAPHS[graph]
    Mesh(Topology.mesh(2, 9, 2), 4, "tanh").gradient(
        np.zeros((64, 2)), np.arange(64) % 2, gradient=method
    )  # loads code
    m = Mesh(make(), ticks, activation="tanh")
    X, y = np.zeros((64, m.topology.n_inputs), np.float32), np.arange(64) % m.topology.n_outputs
    predicted = next(c.bytes for c in m._engines.costs(ticks) if c.method == method)
    tracemalloc.start()
    plan = m.engine("gradient", method, n_jobs=1).plan
    held, planning = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert plan.cost.bytes == pytest.approx(predicted, rel=0.2)
    before = resident()
    m.gradient(X, y, gradient=method, n_jobs=1)
    return max(planning, held + resident() - before) / predicted


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    "graph", ["grid", "wide", *(pytest.param(name, marks=pytest.mark.slow) for name in ("mesh", "layered"))]
)
def test_memory_prediction(graph):
    """Measured in a separate process that returns free memory to the system."""
    program = f"import json, test_large; print(json.dumps([test_large.memory({graph!r}, m) for m in {[*METHODS]}]))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parent, env=os.environ | {"MALLOC_MMAP_THRESHOLD_": "4096"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = dict(zip(METHODS, json.loads(done.stdout), strict=True))
    assert found.pop("influence") < 1.8  # the prediction omits the lists
    assert all(0.4 < ratio < 1.2 for ratio in found.values()), found


def test_a_plan_takes_sixteen_bytes_an_edge_and_edges_take_28():
    m = Mesh(wide(), 2)
    t, plan = m.topology, m.engine("epochs").plan
    assert t.src.dtype == t.dst.dtype == np.int32
    held = sum(a.nbytes for a in {id(a): a for a in plan.course.lists}.values())
    assert held + 4 * len(plan.weight_index) <= 16 * t.n_edges  # includes the permuted weights
    for index in (plan.weight_index, plan.grad_index):
        assert np.shares_memory(index, plan.course.lists.number)  # no copies
    # endpoints, weight, two moments, penalty mask, gradient
    assert t.src.itemsize + t.dst.itemsize + 5 * m.values.itemsize <= 28


def test_needs_and_births_are_those_of_a_slow_search():
    for t, ticks in random_graphs():
        need = np.zeros((ticks + 1, t.n_neurons), np.bool_)
        need[ticks, t.outputs] = True
        for k in range(ticks - 1, 0, -1):
            for i, j in zip(t.src, t.dst, strict=True):
                need[k, i] |= need[k + 1, j] and i >= t.n_clamped and j >= t.n_clamped
        args = (t.n_neurons, t.n_clamped, t.n_outputs, t.src, t.dst, ticks)
        np.testing.assert_array_equal(reach.need_sets(*args), need)
        ptr, order = reach.edges_by_source(t.n_neurons, t.src)
        np.testing.assert_array_equal(order, np.argsort(t.src, kind="stable"))
        np.testing.assert_array_equal(np.diff(ptr), np.bincount(t.src, minlength=t.n_neurons))


@pytest.mark.parametrize("method", METHODS)
def test_blocks_give_the_same_bits(method, monkeypatch):
    """Large graphs are processed in blocks; the results equal those of one pass."""
    t = Topology.mesh(6, 20, 3, density=0.5, random_state=0)
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 6)), rng.integers(0, 3, 40)
    want = Mesh(t, 4, activation="tanh", random_state=0).gradient(X, y, gradient=method)
    monkeypatch.setattr(reach, "BLOCK", 7)
    monkeypatch.setattr(lists, "BLOCK", 11)
    again = Topology(6, 20, 3, np.stack([t.src, t.dst], axis=1))
    assert again == t
    got = Mesh(again, 4, activation="tanh", random_state=0).gradient(X, y, gradient=method)
    assert got[0] == want[0]
    np.testing.assert_array_equal(got[1], want[1])


def test_a_plan_that_would_take_too_long_is_refused(monkeypatch):
    from meshnn.engine import engines
    from meshnn.errors import MeshError
    from meshnn.plan import cost

    m = Mesh(grid(12), 7, activation="tanh")
    X, y = np.zeros((2, 20)), [0, 1]
    want = m.gradient(X, y, gradient="factored")[1]
    sets = {c.method: c.sets for c in m._engines.costs(7)}
    assert sets["factored"] > sets["adjoint"] == 0
    for module in (cost, engines):
        monkeypatch.setattr(module, "LIMITS", PlanningLimits(sets=int(sets["factored"]) - 1))
    again = Mesh(grid(12), 7, activation="tanh", weights=m.weights)
    with pytest.raises(MeshError, match=r'"factored" at 7 ticks.*"adjoint"'):
        again.gradient(X, y, gradient="factored")
    np.testing.assert_allclose(again.gradient(X, y)[1], want, rtol=1e-4, atol=1e-7)
    assert again.explain().chosen == "adjoint"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tied", [False, True])
def test_gradients_by_entries_equal_those_by_values(tied, dtype):
    """More entries than one thread sums, of sorted edges and of parameters that many edges share."""
    t, rng = wide(), np.random.default_rng(0)
    number = rng.integers(0, 1000, t.n_edges) if tied else np.arange(t.n_edges)
    number = np.unique(number, return_inverse=True)[1]
    m = Mesh(t, 2, "tanh", dtype=dtype, random_state=0, tied=number if tied else None)
    X, y = rng.standard_normal((70, 300)), rng.integers(0, 5, 70)
    hidden = np.tanh(X @ m.adjacency().toarray()[:300, 300:2300])
    outputs = hidden @ m.adjacency().toarray()[300:2300, 2300:]
    p = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    p = (p / p.sum(axis=1, keepdims=True) - np.eye(5)[y]) / 70
    back = (p @ m.adjacency().toarray()[300:2300, 2300:].T) * (1 - hidden**2)
    dense = np.zeros((2305, 2305))
    dense[:300, 300:2300], dense[300:2300, 2300:] = X.T @ back, hidden.T @ p
    want = np.bincount(number, dense[t.src, t.dst])
    for method in ("factored", "adjoint"):
        grads = [m.gradient(X, y, gradient=method, n_jobs=n)[1] for n in (1, 2, 3)]
        np.testing.assert_allclose(
            grads[0], want, rtol=0, atol=(1e-12 if dtype == "float64" else 1e-5) * abs(want).max()
        )
        np.testing.assert_array_equal(grads[0], grads[1])
        np.testing.assert_array_equal(grads[0], grads[2])
