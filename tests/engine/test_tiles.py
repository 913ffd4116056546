"""Tiles, input projections, topological passes and half rows: they are used and do not change the results."""

import platform

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import Case, by_autograd, close, targets_for
from examples import examples
from meshnn import Mesh, Topology
from meshnn.plan.tiles import PADDING, SIDE, tile
from meshnn.training import train
from solver_options import with_solver

#: Sizes around those of vectors, blocks and rows of samples in both dtypes.
BATCHES = (1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40, 63, 64, 65, 97, 105)


# -- detection of tiles ------------------------------------------------------------------------------------------------


@st.composite
def lists(draw):
    """Return rows of sorted columns, many of which are equal, nearly equal or different."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, rows = draw(st.integers(1, 40)), []
    for _ in range(draw(st.integers(0, 6))):
        base = np.flatnonzero(rng.random(n) < draw(st.sampled_from([0.0, 0.2, 0.9, 1.0])))
        lost = draw(st.sampled_from([0.0, 0.0, 0.1, 0.5]))
        rows += [base[rng.random(len(base)) >= lost] for _ in range(draw(st.integers(1, 13)))]
    return rows


@examples(300)
@given(rows=lists(), fill=st.booleans())
def test_runs_hold_what_the_rows_held(rows, fill):
    counts = np.array([len(row) for row in rows], dtype=np.int64)
    col = np.concatenate([np.empty(0, np.int64), *rows])
    eid = 100 + np.arange(len(col))
    found = tile(counts, col, eid, fill)
    before, after = np.append(0, np.cumsum(counts)), np.append(0, np.cumsum(found.counts))
    assert after[-1] == len(found.col) == len(found.eid)
    for r, row in enumerate(rows):
        columns, edges = found.col[after[r] : after[r + 1]], found.eid[after[r] : after[r + 1]]
        real = edges != PADDING
        np.testing.assert_array_equal(columns[real], row)
        np.testing.assert_array_equal(edges[real], eid[before[r] : before[r + 1]])
        assert (np.diff(columns) > 0).all()
        assert fill or real.all()
    inside = np.zeros(len(rows), dtype=int)
    for r in np.flatnonzero(found.run):
        size = int(found.run[r])
        assert size % SIDE == 0
        inside[r : r + size] += 1
        alike = [found.col[after[k] : after[k + 1]].tolist() for k in range(r, r + size)]
        assert len(alike) == size
        assert all(columns == alike[0] for columns in alike)
    assert inside.max(initial=0) <= 1
    assert all((found.eid[after[r] : after[r + 1]] != PADDING).all() for r in np.flatnonzero(inside == 0))
    assert found.tiled == sum(found.counts[inside > 0])
    assert found.widest == max(found.counts[inside > 0], default=0)


# -- gradients -------------------------------------------------------------------------------------------------------


def case_of(topology, ticks, dtype, batch, rng, sequence=False, activation="tanh"):
    fan_in = np.maximum(np.bincount(topology.dst, minlength=topology.n_neurons), 1)[topology.dst]
    weights = rng.standard_normal(topology.n_edges) * 1.2 / np.sqrt(fan_in)
    mesh = Mesh(topology, ticks, activation, weights=weights, dtype=dtype)
    shape = (ticks, batch, topology.n_inputs) if sequence else (batch, topology.n_inputs)
    X = rng.standard_normal(shape)
    y = targets_for("cross_entropy", rng, batch, topology.n_outputs)
    return Case(mesh, X, y, "cross_entropy", rng.uniform(0.1, 2.0, batch))


def check(case, methods, tolerance=None):
    tolerance = tolerance or (1e-10 if case.mesh.dtype == np.float64 else 2e-4)
    want_loss, want = by_autograd(case)
    for method in methods:
        loss, grad = case.mesh.gradient(case.X, case.y, case.loss, method, case.sample_weight)
        assert loss == pytest.approx(want_loss, rel=tolerance)
        close(grad, want, tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("batch", BATCHES)
def test_every_size_of_batch(batch, dtype):
    rng = np.random.default_rng(batch)
    case = case_of(Topology.mesh(6, 13, 3), 3, dtype, batch, rng)
    assert case.mesh.engine("gradient", "adjoint").plan.course.lists.run.any()  # the test requires runs
    check(case, ("factored", "adjoint"))


@pytest.mark.parametrize("activation", ["relu", "identity", "sigmoid"])
def test_a_small_batch_after_a_large_one(activation):
    """Half a row is computed; the other half holds values of a larger batch that diverged."""
    rng = np.random.default_rng(0)
    case = case_of(Topology.mesh(6, 13, 3, self_loops=True), 4, "float32", 10, rng, activation=activation)
    mesh = case.mesh
    with np.errstate(all="ignore"):
        before = mesh.weights.copy()
        mesh.weights = np.full_like(before, 1e30)
        mesh.gradient(rng.standard_normal((200, 6)), rng.integers(0, 3, 200), gradient="adjoint")
        mesh.weights = before
    check(case, ("adjoint",))
    np.testing.assert_array_equal(
        mesh.forward(case.X), Mesh(mesh.topology, 4, activation, weights=before).forward(case.X)
    )


# -- topological passes ----------------------------------------------------------------------------------------------


def dag(rng, n_inputs, n_hidden, n_outputs, density):
    n = n_inputs + 1 + n_hidden + n_outputs
    pairs = [(i, j) for j in range(n_inputs + 1, n) for i in range(j) if rng.random() < density]
    pairs += [(0, j) for j in range(n - n_outputs, n)]
    return Topology(n_inputs, n_hidden, n_outputs, sorted(set(pairs)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("activation", ["tanh", "softplus"])
@pytest.mark.parametrize("density", [0.15, 0.6, 1.0])
def test_a_graph_that_settles_runs_in_one_pass(density, activation, dtype):
    rng = np.random.default_rng(int(10 * density))
    topology = dag(rng, 3, 14, 3, density)
    case = case_of(topology, 40, dtype, 33, rng, activation=activation)
    plan = case.mesh.engine("gradient", "adjoint").plan
    assert plan.course.topological_pass
    assert plan.rows["S"] == (1, topology.n_neurons)
    assert case.mesh.engine().plan.course.topological_pass
    check(case, ("adjoint",))
    check(case_of(topology, 40, dtype, 5, rng, sequence=True, activation=activation), ("adjoint",))


@pytest.mark.parametrize("ticks", [1, 4, 10, 16, 17, 18, 19])
def test_ticks_around_the_longest_path(ticks):
    topology = Topology.cascade(2, 16, 2)  # the longest path has 17 edges
    case = case_of(topology, ticks, "float64", 9, np.random.default_rng(ticks))
    assert case.mesh.engine("gradient", "adjoint").plan.course.topological_pass == (ticks >= 17)
    check(case, ("adjoint", "factored", "auto"))


# -- arithmetic --------------------------------------------------------------------------------------------------------


def test_denormals_are_flushed_in_kernels_and_nowhere_else():
    chain = Topology(1, 1, 1, [(0, 1), (1, 2)], bias=False)
    mesh = Mesh(chain, 2, "identity", weights=[1e-30, 1e-12], dtype="float32")
    tiny = np.float32(1e-30) * np.float32(1e-12)
    assert tiny > 0
    many = np.ones((5000, 1))
    calls = [
        lambda: mesh.forward(many, n_jobs=2),
        lambda: mesh.gradient(many, many, "squared_error", n_jobs=2),
        lambda: mesh.jacobian(many),
        lambda: list(train(mesh, [[1.0], [2.0]], [[0.0], [1.0]], "squared_error", solver="adam", max_epochs=1)),
        lambda: list(train(mesh, [[1.0], [2.0]], [[0.0], [1.0]], "squared_error", solver="lm", max_epochs=1)),
    ]
    assert mesh.forward([[1.0]])[0, 0] == (0 if platform.machine() in ("x86_64", "AMD64", "aarch64") else tiny)
    for call in calls:
        call()
        assert np.float32(1e-30) * np.float32(1e-12) == tiny  # the mode of this thread is restored


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_steps_in_halves_are_steps(dtype):
    """A batch of one row of samples, which is split into halves, takes the same steps as plain Python."""
    rng = np.random.default_rng(0)
    size = 64 if dtype == "float32" else 32
    n = 2 * size
    X, y = rng.standard_normal((n, 150)), rng.integers(0, 3, n)
    mesh = Mesh(Topology.layered([150, 300, 3]), activation="tanh", dtype=dtype, random_state=0)
    twin = Mesh(mesh.topology, mesh.ticks, "tanh", weights=mesh.weights, dtype=dtype)
    cost = mesh.engine("epochs", batch=size).plan.cost
    assert size * cost.work >= 2_000_000  # otherwise the batch is not split
    assert cost.tiled > 0.9
    options = {"solver": "sgd", "momentum": 0.0, "nesterov": False, "schedule": "constant", "learning_rate": 0.1}
    list(train(mesh, X, y, batch_size=size, max_epochs=1, l2=0.0, random_state=0, tol=0.0, **with_solver(options)))
    order = np.random.default_rng(int(np.random.default_rng(0).integers(2**63))).permutation(n)
    for at in np.split(order, 2):
        twin.weights = twin.weights - np.asarray(0.1 * twin.gradient(X[at], y[at])[1], dtype)
    np.testing.assert_allclose(mesh.weights, twin.weights, rtol=0, atol=1e-5 if dtype == "float32" else 1e-13)


@examples(200)
@given(data=st.data())
def test_runs_of_numbers(data):
    """Copying runs equals looking up every number, for runs of any length."""
    from meshnn.plan import lists

    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    numbers = np.empty(0, np.uint32)
    for _ in range(data.draw(st.integers(0, 8))):
        size = data.draw(st.integers(1, 40))
        some = rng.integers(0, 100) + np.arange(size) if rng.random() < 0.6 else rng.integers(0, 100, size)
        numbers = np.append(numbers, some).astype(np.uint32)
    runs = lists.runs_of(numbers, data.draw(st.sampled_from([16, 50, 4096])))
    assert runs[:, 0].tolist() == [0, *runs[:-1, 1]][: len(runs)]
    assert (runs[-1, 1] if len(runs) else 0) == len(numbers)
    for begin, end, start in runs.tolist():
        assert end > begin
        if start >= 0:
            np.testing.assert_array_equal(numbers[begin:end], start + np.arange(end - begin))
    assert lists.runs_of(np.arange(20_000, dtype=np.uint32)).tolist() == [[0, 20_000, 0]]
    assert lists.runs_of(np.tile([3, 1], 9_000).astype(np.uint32)).tolist() == [[0, 18_000, -1]]
