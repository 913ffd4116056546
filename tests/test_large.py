"""Large graphs: planning is linear in what it makes, memory is what is predicted, and pieces give the same sums."""

import tracemalloc

import numpy as np
import pytest

from meshnn import Mesh, Topology
from meshnn.plan import METHODS
from meshnn.engine import entries
from meshnn.plan import ListBuilder, ListCounter, Schedule, lists
from meshnn.topology import reach


def grid(side, n_inputs=20, n_outputs=10):
    """Neurons of a square, each linked to its four neighbours."""
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
    """Hidden neurons that read some inputs each, and feed one output."""
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


@pytest.mark.parametrize("method", ["factored", "blocks", "adjoint"])
@pytest.mark.parametrize(
    "graph", ["grid", "wide", *(pytest.param(name, marks=pytest.mark.slow) for name in ("mesh", "layered"))]
)
def test_memory_is_what_is_predicted(graph, method):
    make, ticks = GRAPHS[graph]
    m = Mesh(make(), ticks, activation="tanh")
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((64, m.topology.n_inputs)).astype(np.float32), np.arange(64) % m.topology.n_outputs
    small = Mesh(Topology.mesh(2, 9, 2), 4)
    small.gradient(X[:, :2], y % 2, method=method)  # compiles
    assert not small.engine("gradient", method).plan.straight
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entries, "SOME", 1)
        small.gradient(X[:, :2], y % 2, method=method)
    predicted = next(c.bytes for c in m._engines.costs(ticks) if c.method == method)
    tracemalloc.start()
    try:
        program = m.engine("gradient", method, n_threads=1)
        planning = tracemalloc.get_traced_memory()[1]
        m.gradient(X, y, method=method, n_threads=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert planning < 1.2 * predicted
    assert 0.7 * predicted < peak < 1.2 * predicted
    assert program.plan.cost.bytes == pytest.approx(predicted, rel=0.2)


def test_a_plan_takes_sixteen_bytes_an_edge_and_edges_take_28():
    m = Mesh(wide(), 2)
    t, program = m.topology, m.engine("epochs")
    assert t.src.dtype == t.dst.dtype == np.int32
    arrays = {id(a): a.nbytes for a in (*program.plan.course.ops, program.plan.reads, program.plan.gives) if a.size}
    own = {id(a) for a in program.plan.course.ops}
    held = sum(size for key, size in arrays.items() if key in own)
    assert held + 4 * len(program.plan.reads) <= 16 * t.n_edges  # the weights in their order, too
    for index, whole in ((program.plan.reads, "eid"), (program.plan.gives, "eid")):
        assert np.shares_memory(index, getattr(program.plan.course.ops, whole))  # no copies
    # ends, weight, two moments, penalised or not, gradient
    assert t.src.itemsize + t.dst.itemsize + 5 * m.values.itemsize <= 28


@pytest.mark.parametrize("all_needed", [False, True])
def test_tallies_are_the_lists(all_needed, monkeypatch):
    """Lists that are counted without being made have the rows and entries of those that are."""
    from meshnn.plan import schedule as module

    for topology, ticks in random_graphs():
        awake = np.zeros(topology.n_neurons, np.bool_)
        awake[topology.n_clamped :: 3] = True
        made = Schedule(topology, ticks, awake, all_needed=all_needed)
        builder = ListBuilder(fill=False)
        want = [made.pulls(builder, topology.src, topology.dst)[1][0], made.pushes(builder, ticks - 1)[1][0]]
        monkeypatch.setattr(module, "LISTED", -1)
        counter, counted = ListCounter(fill=False), Schedule(topology, ticks, awake, all_needed=all_needed)
        got = [counted.pulls(counter, topology.src, topology.dst)[1][0], counted.pushes(counter, ticks - 1)[1][0]]
        monkeypatch.undo()
        np.testing.assert_array_equal(got[0], want[0])
        np.testing.assert_array_equal(got[1], want[1])
        assert (counter.n_lists, counter.n_rows, counter.entries) == (builder.n_lists, builder.n_rows, builder.entries)


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
def test_pieces_give_the_same_bits(method, monkeypatch):
    """What is done in pieces on large graphs gives what is done at once on small ones."""
    t = Topology.mesh(6, 20, 3, density=0.5, random_state=0)
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 6)), rng.integers(0, 3, 40)
    want = Mesh(t, 4, activation="tanh", random_state=0).gradient(X, y, method=method)
    monkeypatch.setattr(reach, "BLOCK", 7)
    monkeypatch.setattr(lists, "GATHERED", 11)
    monkeypatch.setattr(entries, "LARGE", 13)
    monkeypatch.setattr(entries, "SOME", 5)
    again = Topology(6, 20, 3, np.stack([t.src, t.dst], axis=1))
    assert again == t
    got = Mesh(again, 4, activation="tanh", random_state=0).gradient(X, y, method=method)
    assert got[0] == want[0]
    np.testing.assert_array_equal(got[1], want[1])


def test_a_gradient_that_comes_as_it_is(monkeypatch):
    t = wide(60, 5, 20)
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 20)), rng.integers(0, 5, 40)
    m = Mesh(t, 2, activation="tanh", random_state=0)
    want = m.gradient(X, y)[1]
    assert m.engine("gradient").plan.straight
    monkeypatch.setattr(entries, "LARGE", 1)
    np.testing.assert_array_equal(m.gradient(X, y)[1], want)
    assert not Mesh(Topology.mesh(3, 5, 2), 3).engine("gradient").plan.straight


def test_edges_are_sorted_and_checked_in_any_order():
    rng = np.random.default_rng(0)
    pairs = np.unique(rng.integers(0, 60, (500, 2)), axis=0)
    for given in (pairs, rng.permutation(pairs), pairs.astype(np.int32), pairs.astype(np.uint64), pairs.astype(float)):
        t = Topology(10, 40, 9, given)
        np.testing.assert_array_equal(np.lexsort((t.src, t.dst)), np.arange(t.n_edges))
        assert set(zip(t.src.tolist(), t.dst.tolist(), strict=True)) == set(map(tuple, pairs.tolist()))


def test_a_plan_that_would_take_too_long_is_refused(monkeypatch):
    from meshnn.errors import MeshError
    from meshnn.plan import choice

    m = Mesh(grid(12), 7, activation="tanh")
    X, y = np.zeros((2, 20)), [0, 1]
    want = m.gradient(X, y, method="factored")[1]
    sets = {c.method: c.sets for c in m._engines.costs(7)}
    assert sets["factored"] > sets["adjoint"] == 0
    monkeypatch.setattr(choice, "MOST_SETS", int(sets["factored"]) - 1)
    again = Mesh(grid(12), 7, activation="tanh", weights=m.weights)
    with pytest.raises(MeshError, match=r'"factored" at 7 ticks .* sets of neurons.* use method="adjoint" or fewer'):
        again.gradient(X, y, method="factored")
    np.testing.assert_allclose(again.gradient(X, y)[1], want, rtol=1e-4, atol=1e-7)
    monkeypatch.setattr(choice, "MOST_SETS", 0)
    assert "sets of neurons" in again.explain().reason


def test_what_takes_long_is_shown_once(monkeypatch, capsys):
    from meshnn import progress

    monkeypatch.setattr(progress, "SILENCE", -1.0)
    monkeypatch.delenv("MESHNN_QUIET", raising=False)
    assert list(progress.watched(range(200), 200, "planning tangents")) == list(range(200))
    assert capsys.readouterr().err.count("planning tangents") == 1
    monkeypatch.setenv("MESHNN_QUIET", "1")
    assert list(progress.watched(range(5), 5, "planning tangents")) == list(range(5))
    monkeypatch.delenv("MESHNN_QUIET")
    monkeypatch.setattr(progress, "SILENCE", 1e9)
    assert list(progress.watched(range(5), 5, "planning tangents")) == list(range(5))
    assert capsys.readouterr().err == ""


def test_a_bar_on_a_terminal_goes_away(monkeypatch):
    import io

    import rich.console

    from meshnn import progress

    screen = io.StringIO()
    console = rich.console.Console(file=screen, force_terminal=True, width=80)
    monkeypatch.setattr(rich.console, "Console", lambda **_: console)
    monkeypatch.setattr(progress, "SILENCE", -1.0)
    monkeypatch.delenv("MESHNN_QUIET", raising=False)
    things = progress.watched(range(1000), 1000, "planning blocks")
    for _ in range(500):
        next(things)
    with pytest.raises(KeyboardInterrupt):
        things.throw(KeyboardInterrupt)
    assert "planning blocks" in screen.getvalue()
    assert screen.getvalue().endswith("\x1b[?25h" + screen.getvalue().rpartition("\x1b[?25h")[2])  # a cursor again


@pytest.mark.parametrize("ticks", [2, 4])
def test_weights_and_gradients_in_the_order_of_entries(ticks, monkeypatch):
    rng = np.random.default_rng(0)
    for t in (wide(60, 5, 20), Topology.mesh(5, 30, 2, random_state=0)):
        plan = Mesh(t, ticks).engine("gradient").plan
        values, g = rng.standard_normal(plan.n_numbers), rng.standard_normal(len(plan.gives)).astype(np.float32)
        want = values[plan.reads]
        want[plan.holes] = 0
        for large, some in ((1 << 21, 1 << 20), (1 << 21, 1), (1, 1)):
            monkeypatch.setattr(entries, "LARGE", large)
            monkeypatch.setattr(entries, "SOME", some)
            np.testing.assert_array_equal(entries.weights_of(plan, values), want)
            np.testing.assert_array_equal(entries.gradient_of(plan, g), np.bincount(plan.gives, g, plan.n_gradient))


def test_a_table_is_never_there_twice():
    rng = np.random.default_rng(0)
    src = rng.integers(0, 1000, 20_000).astype(np.int32)
    rows, counts = np.arange(200, dtype=np.uint32), np.full(200, 100)
    builder = ListBuilder(fill=False)
    tracemalloc.start()
    try:
        for _ in range(100):
            builder.add(rows, counts, slice(0, 20_000), src)
        ops = builder.build()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert ops.nbytes > 100 * 20_000 * 8
    assert peak < 1.4 * ops.nbytes
    np.testing.assert_array_equal(ops.col.reshape(100, -1), np.tile(src, (100, 1)))
