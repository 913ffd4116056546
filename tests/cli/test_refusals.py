"""Bad input of every kind: refused by name, with what to do; overflow shows."""

import warnings

import numpy as np
import pytest
from scipy import sparse

from cases import ALL_METHODS
from meshnn import Mesh, MeshError, Topology

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
        ([[1, 2, 3]], [[1.0, INF]], {"loss": "squared_error"}, "y must be finite .*inf at sample 0, output 1"),
        ([[1, 2, 3]], [1.0], {"loss": "squared_error"}, r"y must have shape \(1, 2\), got \(1,\)"),
        (
            [[1, 2, 3]],
            [0],
            {"loss": "cross_entrpy"},
            "unknown loss 'cross_entrpy'; did you mean 'cross_entropy'",
        ),
        ([[1, 2, 3]], [0], {"gradient": "backprop"}, "'backprop'"),
        ([[1, 2, 3]], [0], {"sample_weight": [NAN]}, "finite and not negative"),
        ([[1, 2, 3]], [0], {"sample_weight": [-1]}, "finite and not negative"),
        ([[1, 2, 3]], [0], {"sample_weight": [0]}, "zero for every sample"),
        ([[1, 2, 3]], [0], {"sample_weight": [1, 1]}, r"sample_weight must have shape \(1,\)"),
        ([[1, 2, 3]], [0], {"n_jobs": 0}, "n_jobs must be a whole number of at least 1"),
        ([[1, 2, 3]], [0], {"n_jobs": "2"}, "n_jobs must be a whole number of at least 1"),
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
        (lambda: Topology.mesh(2, 10**7, 2), "a graph of 100,000,050,000,004 edges would need .* take fewer neurons"),
        (lambda: Topology.cascade(2, 10**30, 2), "edges would need .* take fewer neurons"),
        (lambda: Topology.layered([10**6, 10**6]), "edges would need .* smaller layers"),
        (lambda: Topology(10**30, 1, 1, []), "fewer than 2\\*\\*31 neurons"),
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
