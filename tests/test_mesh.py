"""The public contract of Mesh, its invariances and its refusals."""

import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from cases import ALL_METHODS, cases, close
from meshnn import Mesh, MeshError, Topology
from meshnn.errors import MemoryLimitError


@pytest.fixture
def mesh():
    return Mesh(Topology.mesh(3, 6, 2), activation="tanh", dtype="float64", random_state=0)


@pytest.fixture
def batch():
    rng = np.random.default_rng(1)
    return rng.standard_normal((100, 3)), rng.integers(0, 2, 100)


def test_defaults(mesh):
    assert Mesh(mesh.topology).dtype == np.float32
    assert Mesh(mesh.topology).ticks == 3
    assert Mesh(mesh.topology).activations == ["relu"] * 6 + ["identity"] * 2
    bias = mesh.topology.src == 3
    assert (mesh.weights[bias] == 0).all()
    assert (mesh.weights[~bias] != 0).all()
    np.testing.assert_array_equal(
        Mesh(mesh.topology, random_state=5).weights,
        Mesh(mesh.topology, random_state=np.random.default_rng(5)).weights,
    )


def test_layered_is_the_feed_forward_net():
    t = Topology.layered([2, 4, 3, 2])
    m = Mesh(t, activation="tanh", dtype="float64", random_state=0)
    m.weights = np.random.default_rng(0).standard_normal(t.n_edges)
    A = m.adjacency().toarray()
    X = np.random.default_rng(1).standard_normal((7, 2))
    h = np.tanh(X @ A[:2, 3:7] + A[2, 3:7])
    h = np.tanh(h @ A[3:7, 7:10] + A[2, 7:10])
    want = h @ A[7:10, 10:] + A[2, 10:]
    np.testing.assert_allclose(m.forward(X), want, rtol=1e-13)


def test_adjacency_round_trip_keeps_zero_weights(mesh):
    mesh.weights[4] = 0.0
    A = mesh.adjacency()
    assert isinstance(A, sparse.csr_array)
    again = Mesh.from_adjacency(A, 3, 2, bias=True, activation="tanh")
    assert again.topology == mesh.topology
    assert again.dtype == mesh.dtype
    np.testing.assert_array_equal(again.weights, mesh.weights)
    dense = Mesh.from_adjacency(A.toarray(), 3, 2, bias=True)
    assert dense.topology.n_edges == mesh.topology.n_edges - 9  # eight zero biases and the one above are no edges


def test_plans_are_cached_until_the_graph_changes(mesh, batch, monkeypatch):
    import meshnn.planner as module

    calls = []
    real = module.compile_plan
    monkeypatch.setattr(module, "compile_plan", lambda *a, **k: calls.append(a) or real(*a, **k))
    mesh.gradient(*batch)
    mesh.weights = mesh.weights * 2
    mesh.weights[0] = 1.0
    mesh.gradient(*batch)
    assert len(calls) == 1
    mesh.ticks = 4
    mesh.gradient(*batch)
    assert len(calls) == 2
    t = mesh.topology
    fewer = Topology(3, 6, 2, np.stack([t.src, t.dst], 1)[:-1])
    mesh.rewire(fewer)
    mesh.gradient(*batch)
    assert len(calls) == 3
    np.testing.assert_array_equal(mesh.weights[:1], [1.0])


def test_rewire_keeps_weights_of_edges_that_stay(mesh):
    t, before = mesh.topology, mesh.weights.copy()
    edges = np.stack([t.src, t.dst], 1)
    mesh.rewire(Topology(3, 6, 2, [*edges[5:].tolist(), (4, 4)]))
    after = {(i, j): w for i, j, w in zip(mesh.topology.src, mesh.topology.dst, mesh.weights, strict=True)}
    assert after[4, 4] == 0.0
    assert [after[i, j] for i, j in edges[5:].tolist()] == before[5:].tolist()
    with pytest.raises(MeshError, match="rewire keeps the neurons"):
        mesh.rewire(Topology.mesh(3, 7, 2))


def test_pickle(mesh, batch):
    mesh.gradient(*batch)
    again = pickle.loads(pickle.dumps(mesh))
    np.testing.assert_array_equal(again.gradient(*batch)[1], mesh.gradient(*batch)[1])


# -- invariances -------------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(case=cases(most_batch=33))
def test_a_batch_equals_its_samples_one_by_one(case):
    m = case.mesh
    grads = []
    for b in range(case.X.shape[-2]):
        X = case.X[..., b : b + 1, :]
        grads.append(m.gradient(X, case.y[b : b + 1], case.loss)[1] * case.shares[b])
    close(
        m.gradient(case.X, case.y, case.loss, sample_weight=case.sample_weight)[1],
        np.sum(grads, axis=0),
        1e-12,
    )


@settings(max_examples=40)
@given(case=cases(), seed=st.integers(0, 99))
def test_relabelling_hidden_neurons_permutes_the_gradient(case, seed):
    m, t = case.mesh, case.mesh.topology
    new = np.arange(t.n_neurons)
    new[t.hidden] = np.random.default_rng(seed).permutation(t.hidden)
    other = Topology(t.n_inputs, t.n_hidden, t.n_outputs, np.stack([new[t.src], new[t.dst]], 1), bias=t.bias)
    back = np.argsort(new)
    A = case.dense()
    names = m.activations[: t.n_hidden]
    hidden = [names[back[h] - t.n_clamped] for h in t.hidden]
    relabelled = Mesh(other, m.ticks, hidden, m.activations[-1], A[back[other.src], back[other.dst]], "float64")
    want = np.zeros((t.n_neurons, t.n_neurons))
    want[new[t.src], new[t.dst]] = m.gradient(case.X, case.y, case.loss)[1]
    close(relabelled.gradient(case.X, case.y, case.loss)[1], want[other.src, other.dst], 1e-11)


@settings(max_examples=60)
@given(case=cases())
def test_dead_edges_have_no_gradient_and_no_influence(case):
    m = case.mesh
    dead = m.dead_edges()
    for method in ALL_METHODS:
        assert (m.gradient(case.X, case.y, case.loss, method)[1][dead] == 0).all()
    before = m.forward(case.X)
    m.weights[dead] = 1e6
    np.testing.assert_array_equal(m.forward(case.X), before)
    t = m.topology
    kept = ~dead
    if kept.any():
        alive = Topology(t.n_inputs, t.n_hidden, t.n_outputs, np.stack([t.src, t.dst], 1)[kept], bias=t.bias)
        smaller = Mesh(alive, m.ticks, m.activations[: t.n_hidden], m.activations[-1], m.weights[kept], "float64")
        np.testing.assert_array_equal(smaller.forward(case.X), before)


@settings(max_examples=60)
@given(case=cases(activation="sin"))
def test_live_edges_do_have_an_influence(case):
    """The mask is not merely an upper bound: with generic weights every live edge of a smooth net has a gradient."""
    t = case.mesh.topology
    m = Mesh(t, case.mesh.ticks, "sin", "identity", case.mesh.weights, "float64")
    J = np.abs(m.jacobian(case.X, "adjoint")).max(axis=(0, 1), initial=0)
    assert ((J == 0) == m.dead_edges()).all()


# -- choosing a method -------------------------------------------------------------------------------------------


def test_auto_is_forward_only_at_few_ticks(mesh, batch):
    text = str(mesh.explain(batch_size=64))
    for word in (
        "factored",
        "blocks",
        "tensor",
        "adjoint",
        "exact",
        "forward-only",
        "multiply-adds",
        "bytes",
        "<- auto",
    ):
        assert word in text
    assert mesh.explain().chosen == "factored"
    assert "cheapest exact forward-only" in mesh.explain().reason
    np.testing.assert_array_equal(mesh.gradient(*batch)[1], mesh.gradient(*batch, method="factored")[1])


def test_at_two_ticks_forward_only_costs_what_backprop_costs():
    m = Mesh(Topology.mesh(32, 50, 10, density=0.2, random_state=0), ticks=2)
    d = m.explain().decision
    assert d.cost("factored").multiply_adds == d.cost("adjoint").multiply_adds
    assert f"{int(m.dead_edges().sum())} of {m.topology.n_edges} edges are dead" in str(m.explain())


def test_auto_leaves_forward_only_when_it_is_ten_times_dearer(batch):
    t = Topology.mesh(3, 60, 2, random_state=0)
    m = Mesh(t, ticks=8, activation="tanh", random_state=0)
    assert m.explain().chosen == "adjoint"
    assert "times dearer" in m.explain().reason
    X, y = batch
    assert m._resolve("forward", 100, None) in ("factored", "blocks")
    close(m.gradient(X, y)[1], m.gradient(X, y, method="forward")[1], 1e-4)


def test_blocks_win_where_fan_in_is_small_and_ticks_are_many():
    ring = Topology(1, 6, 1, [(0, 1), *((k, k % 6 + 1) for k in range(1, 7)), (6, 7)], bias=False)
    d = Mesh(ring, ticks=30, activation="tanh").explain().decision
    assert d.cost("blocks").predicted < d.cost("factored").predicted


def test_costs_count_what_the_plan_holds():
    """The predicted multiply-adds of the factored method are the entries that its lists make the kernels visit."""
    from meshnn.plan import compile_plan

    t = Topology.mesh(4, 12, 3, density=0.4, random_state=3)
    for ticks in (1, 2, 3, 5):
        m = Mesh(t, ticks=ticks, activation="tanh")
        plan = compile_plan(t, ticks, m.awake, "factored")
        size = [
            int(plan.ops.ptr[plan.ops.start[q + 1]]) - int(plan.ops.ptr[plan.ops.start[q]])
            for q in range(len(plan.ops.start) - 1)
        ]
        rows = np.diff(plan.ops.start.astype(int))
        total = 2 * sum(size[q] for q in plan.forward[1:]) + (size[plan.back[ticks - 1]] if ticks > 1 else 0)
        for a in range(len(plan.tangents.tick)):
            chain = plan.tangents.chain[plan.tangents.ptr[a] : plan.tangents.ptr[a + 1]]
            total += sum(size[q] for q in chain) + rows[chain[-1]]
        assert m.explain().decision.cost("factored").multiply_adds == total


def test_too_little_memory(mesh, batch, monkeypatch):
    import meshnn.planner as module

    m = Mesh(Topology.mesh(3, 100, 2, density=0.1, random_state=0), ticks=6, activation="tanh")
    costs = m.explain(100).decision
    between = int((costs.cost("adjoint").bytes + costs.cost("tensor").bytes) / 2)
    monkeypatch.setattr(module, "available_memory", lambda: between)
    with pytest.raises(
        MemoryLimitError, match=r'"tensor" at 6 ticks would need .*iB, .* has .*iB; use method="adjoint"'
    ):
        m.gradient(*batch, method="tensor")
    monkeypatch.setattr(module, "available_memory", lambda: 20_000)
    with pytest.raises(MemoryLimitError, match="the graph needs a larger machine"):
        m.gradient(*batch)
    three = max(c.bytes for c in m._planner._price(3) if c.method == "adjoint")
    monkeypatch.setattr(module, "available_memory", lambda: int(three) + 1)
    with pytest.raises(MemoryLimitError, match="; 3 ticks would fit"):
        m.gradient(*batch, n_threads=1)
    monkeypatch.setattr("meshnn.memory.available_memory", lambda: 100_000)
    with pytest.raises(MemoryLimitError, match=r"the Jacobian of this batch would need .* pass fewer samples"):
        Mesh(mesh.topology, dtype="float64").jacobian(batch[0])
    src, dst = np.divmod(np.arange(105 * 105), 105)
    blocks = max(c.bytes for c in m._planner._price(6, workers=2) if c.method == "blocks")
    monkeypatch.setattr(module, "available_memory", lambda: int(blocks) + 1)
    with pytest.raises(
        MemoryLimitError, match=r'"blocks" for 11025 edges would need .*; ask for fewer edges at a time'
    ):
        m.growth_scores(*batch, src=src, dst=dst, method="blocks")


def test_memory_falls_back_to_the_adjoint_and_back():
    from meshnn.plan import decide, price

    t = Topology.mesh(3, 40, 2, random_state=0)
    costs = price(t, 4, Mesh(t).awake)
    assert decide(costs, 10**12).chosen == "factored"
    adjoint = next(c for c in costs if c.method == "adjoint")
    tight = decide(costs, int(adjoint.bytes) + 1)
    assert tight.chosen == "adjoint"
    assert "would need" in tight.reason
    # many ticks: the adjoint is cheaper, but its history does not fit; blocks do
    t = Topology.mesh(1, 12, 1)
    costs = price(t, 2000, Mesh(t).awake)
    blocks, adjoint = costs[1], costs[3]
    assert blocks.bytes < adjoint.bytes
    assert decide(costs, int(adjoint.bytes) + 1).chosen == "adjoint"
    assert decide(costs, int(blocks.bytes) + 1).chosen == "blocks"


def test_the_sampled_cost_is_near_the_exact_one(monkeypatch):
    import meshnn.plan.cost as module

    t = Topology.mesh(10, 400, 5, density=0.02, random_state=0)
    exact = module.price(t, 4, Mesh(t, ticks=4).awake)
    monkeypatch.setattr(module, "_SAMPLE", 100)
    for whole, sampled in zip(exact[:2], module.price(t, 4, Mesh(t, ticks=4).awake)[:2], strict=True):
        assert not whole.estimated or whole.method == "factored"
        assert sampled.estimated
        assert sampled.predicted == pytest.approx(whole.predicted, rel=0.2)


@pytest.mark.parametrize("method", ["factored", "blocks", "adjoint"])
def test_predicted_bytes_are_those_allocated(method):
    t = Topology.mesh(4, 30, 3, density=0.4, random_state=3)
    for ticks in (2, 4, 7):
        planner = Mesh(t, ticks)._planner
        program = planner.program(method, ticks)
        allocated = program.plan.nbytes + sum(buffer.nbytes for buffer in program.borrow().values())
        predicted = next(c for c in planner._price(ticks) if c.method == method).bytes
        assert 0.7 < allocated / predicted < 1.3


def test_many_ticks_are_decided_quickly():
    m = Mesh(Topology.mesh(2, 15, 2), ticks=3000, activation="tanh", random_state=0)
    assert m.explain().chosen in ("adjoint", "blocks")
    assert np.isfinite(m.gradient([[0.1, 0.2]], [1])[1]).all()


def test_default_ticks_of_awake_neurons_reach_every_output():
    edges = [(0, 1), (1, 2), (2, 3), (3, 3), (1, 4), (2, 4), (3, 4), (3, 5)]
    t = Topology(1, 3, 2, edges, bias=False)
    assert Mesh(t, activation="sigmoid").ticks == 4
    assert Mesh(t, activation="tanh").ticks == 5


def test_plan_too_large():
    from meshnn.plan import compile_plan
    from meshnn.plan.compile import PlanTooLargeError, _narrow

    t = Topology.mesh(4, 12, 3)
    with pytest.raises(PlanTooLargeError):
        compile_plan(t, 6, Mesh(t).awake, "factored", limit=1000)
    with pytest.raises(PlanTooLargeError):
        _narrow(np.array([0, 2**32]))


def test_memory_in_a_container(tmp_path):
    from meshnn.memory import _limits

    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("900\n")
    (tmp_path / "memory.stat").write_text("anon 300\ninactive_file 500\n")
    assert 600 in _limits(tmp_path)
    (tmp_path / "memory.max").write_text("max\n")
    assert 600 not in _limits(tmp_path)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8])
def test_sample_weights_of_any_dtype(mesh, batch, dtype):
    X, y = batch
    weight = np.random.default_rng(0).integers(1, 5, 100)
    want = mesh.gradient(X, y, sample_weight=weight.astype(np.float64))[1]
    np.testing.assert_allclose(mesh.gradient(X, y, sample_weight=weight.astype(dtype))[1], want, rtol=1e-13, atol=1e-16)
    huge = weight * 1e307
    np.testing.assert_allclose(mesh.gradient(X, y, sample_weight=huge)[1], want, rtol=1e-13, atol=1e-16)


def test_deepcopy(mesh, batch):
    import copy

    mesh.gradient(*batch)
    twin = copy.deepcopy(mesh)
    twin.weights[0] += 1.0
    assert twin.weights[0] != mesh.weights[0]
    assert twin.gradient(*batch)[0] != mesh.gradient(*batch)[0]


# -- bad input ---------------------------------------------------------------------------------------------------

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("X", "y", "options", "message"),
    [
        ([[1, 2, NAN]], [0], {}, "X holds nan at sample 0, feature 2"),
        ([[1, 2, 3], [1, INF, 3]], [0, 1], {}, "X holds inf at sample 1, feature 1"),
        ([[1, 2]], [0], {}, "X has 2 features, the mesh has 3 inputs"),
        ([[1, 2, 3, 1]], [0], {}, "leave the column of ones out"),
        ([1, 2, 3], [0], {}, r"X must have shape \(batch, 3\)"),
        (np.zeros((2, 5, 3)), [0] * 5, {}, "X has inputs for 2 ticks, but the mesh runs 3"),
        (np.zeros((0, 3)), [], {}, "empty batch"),
        ([["a", "b", "c"]], [0], {}, "X must hold real numbers"),
        ([[1, 2, 3], [1, 2]], [0], {}, "not a rectangular array"),
        (sparse.csr_array(np.ones((1, 3))), [0], {}, "sparse"),
        ([[1, 2, 3]], [2], {}, "label of sample 0 is 2, but the mesh has 2 outputs"),
        ([[1, 2, 3]], [-1], {}, "labels must lie between 0 and 1"),
        ([[1, 2, 3]], [0.5], {}, "label of sample 0 is 0.5"),
        ([[1, 2, 3]], [NAN], {}, "label of sample 0 is nan"),
        ([[1, 2, 3]], [0, 1], {}, r"labels of shape \(1,\), got \(2,\)"),
        ([[1, 2, 3]], [[1, 0]], {}, r"look one-hot, pass y.argmax\(axis=1\)"),
        ([[1, 2, 3]], [[1.0, INF]], {"loss": "squared_error"}, "y holds inf at sample 0, output 1"),
        ([[1, 2, 3]], [1.0], {"loss": "squared_error"}, r"y must have shape \(1, 2\), got \(1,\)"),
        (
            [[1, 2, 3]],
            [0],
            {"loss": "cross_entrpy"},
            "unknown loss 'cross_entrpy'; did you mean 'cross_entropy'",
        ),
        ([[1, 2, 3]], [0], {"method": "backprop"}, "unknown method 'backprop'"),
        ([[1, 2, 3]], [0], {"sample_weight": [NAN]}, "finite and not negative"),
        ([[1, 2, 3]], [0], {"sample_weight": [-1]}, "finite and not negative"),
        ([[1, 2, 3]], [0], {"sample_weight": [0]}, "zero for every sample"),
        ([[1, 2, 3]], [0], {"sample_weight": [1, 1]}, r"sample_weight must have shape \(1,\)"),
        ([[1, 2, 3]], [0], {"n_threads": 0}, "n_threads must be a whole number of at least 1"),
        ([[1, 2, 3]], [0], {"n_threads": "2"}, "n_threads must be a whole number of at least 1"),
    ],
)
def test_bad_input_is_refused(mesh, X, y, options, message):
    with pytest.raises(MeshError, match=message):
        mesh.gradient(X, y, **options)


def test_float32_overflow_in_the_data_is_refused():
    m = Mesh(Topology.mesh(1, 2, 1))
    with pytest.raises(MeshError, match=r"X holds 1e\+300 at sample 0, feature 0, which does not fit float32"):
        m.forward([[1e300]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ticks": 0}, "ticks must be a whole number of at least 1, got 0"),
        ({"ticks": 2.5}, "ticks must be a whole number of at least 1, got 2.5"),
        ({"activation": "rleu"}, "unknown activation 'rleu'; did you mean 'relu'"),
        ({"activation": ["relu"] * 5}, r"one per hidden neuron \(6\), got 5"),
        ({"output_activation": "softmax"}, "unknown output_activation 'softmax'"),
        ({"weights": [1.0]}, r"weights must have shape \(86,\)"),
        ({"weights": np.full(86, NAN)}, "weight 0 is nan, which is not finite; 86 of 86"),
        ({"weights": np.full(86, 1e300)}, "weight 0 is 1e.300, which does not fit float32"),
        ({"dtype": "float16"}, "dtype must be 'float32' or 'float64', got 'float16'"),
        ({"dtype": "nonsense"}, "dtype must be"),
    ],
)
def test_a_wrong_mesh_is_refused(options, message):
    with pytest.raises(MeshError, match=message):
        Mesh(Topology.mesh(3, 6, 2), **options)


def test_weights_spoilt_in_place_are_noticed(mesh, batch):
    mesh.weights[4] = NAN
    for call in (
        lambda: mesh.forward(batch[0]),
        lambda: mesh.gradient(*batch),
        lambda: mesh.jacobian(batch[0]),
    ):
        with pytest.raises(MeshError, match="weight 4 is nan"):
            call()


def test_an_output_out_of_reach_is_named():
    chain = Topology(1, 2, 2, [(0, 2), (2, 3), (3, 4), (0, 5)])
    with pytest.raises(MeshError, match=r"no input reaches output 0 \(neuron 4\) within 2 ticks; it needs 3 ticks"):
        Mesh(chain, ticks=2)
    assert Mesh(chain).ticks == 3
    with pytest.raises(MeshError, match=r"no input reaches output 1 \(neuron 5\) at any number of ticks"):
        Mesh(Topology(1, 2, 2, [(0, 2), (2, 3), (3, 4)]))
    with pytest.raises(MeshError, match="no edges"):
        Mesh(Topology(1, 2, 2, []))
    with pytest.raises(MeshError, match="topology must be a Topology, got list"):
        Mesh([(0, 1)])


def test_growth_scores_refuse_wrong_pairs(mesh, batch):
    for src, dst, message in [
        ([99], [0], "src must hold neuron numbers from 0 to 11"),
        ([0, 1], [0, 1, 2], "shapes that broadcast"),
    ]:
        with pytest.raises(MeshError, match=message):
            mesh.growth_scores(*batch, src=src, dst=dst)


def test_overflow_shows():
    """A state too large for the dtype is inf or nan in the result, never a finite number."""
    t = Topology.layered([1, 2, 2, 1], bias=False)
    for activation in ("identity", "relu", "leaky_relu", "elu", "softplus"):
        for dtype, big in (("float32", 1e30), ("float64", 1e200)):
            m = Mesh(t, activation=activation, weights=np.full(t.n_edges, big), dtype=dtype)
            for B in (1, 7, 65):
                X = np.ones((B, 1))
                assert not np.isfinite(m.forward(X)).any()
                assert not np.isfinite(m.states(X)[-1][:, -1]).any()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # numpy may warn on inf - inf in the tensor oracle
                    for method in ALL_METHODS:
                        loss, grad = m.gradient(X, np.zeros((B, 1)), "squared_error", method)
                        assert not np.isfinite(loss)
                        assert not np.isfinite(grad).all()


def test_one_overflowing_sample_does_not_hide():
    t = Topology.layered([1, 1, 1], bias=False)
    m = Mesh(t, activation="identity", weights=[1e30, 1e30], dtype="float32")
    X = np.zeros((100, 1))
    X[17] = 1.0
    Y = m.forward(X)
    assert np.isinf(Y[17, 0])
    assert (np.delete(Y, 17) == 0).all()


@pytest.mark.parametrize("labels", [[True, False], np.array([0, 1], dtype=np.uint8), [0.0, 1.0]])
def test_labels_of_any_whole_kind(mesh, labels):
    X = [[1, 2, 3], [4, 5, 6]]
    assert mesh.gradient(X, labels)[0] == mesh.gradient(X, [int(v) for v in labels])[0]


def test_read_only_and_strided_data(mesh, batch):
    X, y = batch
    want = mesh.gradient(X, y)[1]
    frozen = X.copy()
    frozen.setflags(write=False)
    strided = np.zeros((200, 6))
    strided[::2, ::2] = X
    np.testing.assert_array_equal(mesh.gradient(frozen, y)[1], want)
    np.testing.assert_array_equal(mesh.gradient(strided[::2, ::2], y)[1], want)
    np.testing.assert_array_equal(mesh.gradient(X.tolist(), y.tolist())[1], want)
    np.testing.assert_array_equal(mesh.gradient(np.asfortranarray(X), y)[1], want)


# -- odd arguments -----------------------------------------------------------------------------------------------

T = Topology.mesh(2, 5, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Mesh(T, activation=None), "activation must be a list, got NoneType"),
        (lambda: Mesh(T, activation=np.tanh), "activation must be a list, got ufunc"),
        (lambda: Mesh(T, activation={"relu"}), r"activation must be a list, got set; pass list\(...\)"),
        (lambda: Mesh(T, activation=np.array("tanh")), "an array of shape"),
        (lambda: Mesh(T, activation="Relu"), "did you mean 'relu'"),
        (lambda: Mesh(T, random_state=-1), "random_state must be None, a whole number of at least 0"),
        (lambda: Mesh(T, random_state="x"), "random_state must be None"),
        (lambda: Mesh(T, ticks=10**9), "ticks must be at most 100,000, got 1000000000"),
        (lambda: Mesh(T, dtype=None), "dtype must be"),
        (lambda: Topology.mesh(2, 5, 2, density="0.5"), "density must be a number between 0 and 1, got '0.5'"),
        (lambda: Topology.mesh(2, 5, 2, self_loops="no"), "self_loops must be True or False, got 'no'"),
        (lambda: Topology.mesh(2, 5, 2, density=0.5, random_state=1.5), "random_state must be"),
        (lambda: Topology.mesh(2, 10**7, 2), "a graph of 100,000,050,000,004 edges would need .* lower the density"),
        (lambda: Topology.cascade(2, 10**30, 2), "edges would need .* take fewer neurons"),
        (lambda: Topology.layered([10**6, 10**6]), "edges would need .* smaller layers"),
        (lambda: Topology(10**30, 1, 1, []), "fewer than 2\\*\\*32 neurons"),
        (lambda: Topology.layered(None), "sizes must be a list, got NoneType"),
        (lambda: Topology.layered({2, 3}), "sizes must be a list, got set"),
        (lambda: Topology.layered([2, 2], bias="x"), "bias must be True or False"),
        (lambda: Topology(1, 1, 1, None), "edges must be an array or list of pairs, got NoneType"),
        (lambda: Topology(1, 1, 1, iter([(0, 2)])), r"got list_iterator; pass list\(edges\)"),
        (lambda: Topology(1, 1, 1, np.zeros((2, 0))), r"shape \(n_edges, 2\), got \(2, 0\)"),
        (lambda: Topology(1, 1, 1, [(0, float("inf"))]), r"edge 0 is \(0.0, inf\)"),
        (lambda: Topology.from_adjacency([[1], [1, 2]], 1, 1), "must be square"),
        (lambda: Topology.from_adjacency(np.ma.array(np.eye(3), mask=np.eye(3)), 1, 1), "masked array"),
        (lambda: Topology.from_networkx(None, [1], [2]), "expected a networkx.DiGraph, got NoneType"),
        (lambda: Topology.from_networkx(T.to_networkx(), {0, 1}, [8]), "inputs must be a list, got set"),
        (lambda: T.check_reachable("3"), "ticks must be a whole number"),
        (lambda: T.dead_edges(3, awake=[1] * 10), "awake must be a mask of shape"),
        (lambda: Mesh(T).rewire(None), "rewire takes a Topology, got NoneType"),
        (lambda: Mesh(T).forward([[10**400, 1]]), "X must hold numbers"),
        (lambda: Mesh(T).forward(np.ma.array([[1.0, 2.0]], mask=[[0, 1]])), "masked array, whose mask would be lost"),
        (lambda: Mesh(T).growth_scores([[1, 2]], [0], src=[True], dst=[3]), "whole neuron numbers"),
        (lambda: Mesh(T, weights=np.full(61, 1e300)), r"weight 0 is 1e\+300, which does not fit float32"),
    ],
)
def test_odd_arguments_are_refused(call, message):
    with pytest.raises(MeshError, match=message):
        call()


def test_weights_reshaped_in_place_are_noticed():
    m = Mesh(T)
    m.weights.shape = (61, 1)
    with pytest.raises(MeshError, match="reshaped in place"):
        m.forward([[1.0, 2.0]])


@pytest.mark.parametrize("B", [1, 63, 64, 65, 128])
def test_an_overflowing_loss_is_infinite_at_any_batch_size(B):
    m = Mesh(Topology.layered([1, 1]), weights=[1.0, 0.0])
    assert m.gradient(np.ones((B, 1)), np.full((B, 1), 1e20), "squared_error")[0] == np.inf
    m = Mesh(Topology.layered([1, 2]), weights=[3e38, 0, -3e38, 0])
    assert m.gradient(np.ones((B, 1)), np.ones(B, int))[0] == np.inf


def test_samples_without_weight_do_not_count():
    m = Mesh(Topology.layered([1, 1]), weights=[1.0, 0.0])
    loss, grad = m.gradient([[1.0], [1.0]], [[1e20], [0.0]], "squared_error", sample_weight=[0, 1])
    assert loss == 0.5
    np.testing.assert_allclose(grad, [1.0, 1.0])


def test_from_adjacency_keeps_wide_floats():
    A = np.array([[0, 2.0], [0, 0.5]])
    assert Mesh.from_adjacency(A.astype(">f8"), 1, 1).dtype == np.float64
    assert Mesh.from_adjacency(A.astype(np.longdouble), 1, 1).dtype == np.float64
    assert Mesh.from_adjacency(A.astype(np.float32), 1, 1).dtype == np.float32
    assert Mesh.from_adjacency(A.astype(int), 1, 1).dtype == np.float32
