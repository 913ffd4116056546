"""Bad input of every kind: refused by name, with what to do; overflow shows."""

import numpy as np
import pytest
from scipy import sparse

from cases import ALL_METHODS
from meshnn import Mesh, MeshError, Topology

NAN, INF = float("nan"), float("inf")
T = Topology.mesh(2, 5, 2)


ROW = [[1, 2, 3]]


@pytest.mark.parametrize(("X", "y", "options", "message"), [
    ([[1, 2, NAN]], [0], {}, "nan at sample 0, feature 2"), ([[1, 2]], [0], {}, "2 features"),
    ([[1, 2, 3], [1, INF, 3]], [0, 1], {}, "inf at sample 1, feature 1"), ([1, 2, 3], [0], {}, r"\(batch, 3\)"),
    (np.zeros((2, 5, 3)), [0] * 5, {}, "2 ticks"), (np.zeros((0, 3)), [], {}, "empty batch"),
    ([["a", "b", "c"]], [0], {}, "real numbers"), ([[1, 2, 3], [1, 2]], [0], {}, "rectangular"),
    (sparse.csr_array(np.ones((1, 3))), [0], {}, "sparse"), (ROW, [2], {}, "label of sample 0 is 2"),
    (ROW, [-1], {}, "labels"), (ROW, [0.5], {}, "0.5"), (ROW, [NAN], {}, "nan"), (ROW, [0, 1], {}, r"\(2,\)"),
    (ROW, [[1, 0]], {}, "one-hot"), (ROW, [[1.0, INF]], {"loss": "squared_error"}, "inf at sample 0, output 1"),
    (ROW, [1.0], {"loss": "squared_error"}, r"\(1, 2\)"), (ROW, [0], {"loss": "cross_entrpy"}, "'cross_entropy'"),
    (ROW, [0], {"gradient": "backprop"}, "'backprop'"), (ROW, [0], {"sample_weight": [NAN]}, "not negative"),
    (ROW, [0], {"sample_weight": [-1]}, "not negative"), (ROW, [0], {"sample_weight": [0]}, "zero"),
    (ROW, [0], {"sample_weight": [1, 1]}, r"\(1,\)"), (ROW, [0], {"n_jobs": 0}, "n_jobs"),
])  # fmt: skip
def test_bad_input_is_refused(mesh, X, y, options, message):
    with pytest.raises(MeshError, match=message):
        mesh.gradient(X, y, **options)


@pytest.mark.parametrize(("options", "message"), [
    ({"ticks": 0}, "ticks"), ({"ticks": 2.5}, "2.5"), ({"ticks": 10**9}, "ticks"), ({"activation": "rleu"}, "'relu'"),
    ({"activation": ["relu"] * 5}, "got 5"), ({"output_activation": "softmax"}, "'softmax'"),
    ({"activation": None}, "NoneType"), ({"activation": {"relu"}}, "set"), ({"activation": np.array("tanh")}, "list"),
    ({"weights": [1.0]}, r"\(86,\)"), ({"weights": np.full(86, NAN)}, "weight 0 is nan"),
    ({"weights": np.full(86, 1e300)}, "float32"), ({"dtype": "float16"}, "'float16'"), ({"dtype": None}, "dtype"),
    ({"random_state": -1}, "random_state"), ({"random_state": "x"}, "random_state"),
])  # fmt: skip
def test_a_wrong_mesh_is_refused(options, message):
    with pytest.raises(MeshError, match=message):
        Mesh(Topology.mesh(3, 6, 2), **options)


def test_weights_spoilt_in_place_are_noticed(mesh, batch):
    mesh.weights[4] = NAN
    for call in (lambda: mesh.forward(batch[0]), lambda: mesh.gradient(*batch), lambda: mesh.jacobian(batch[0])):
        with pytest.raises(MeshError, match="weight 4 is nan"):
            call()
    mesh = Mesh(T)
    mesh.weights.shape = (61, 1)
    with pytest.raises(MeshError, match="reshaped"):
        mesh.forward([[1.0, 2.0]])


def test_an_output_out_of_reach_is_named():
    chain = Topology(1, 2, 2, [(0, 2), (2, 3), (3, 4), (0, 5)])
    with pytest.raises(MeshError, match=r"output 0 .*neuron 4.*2 ticks"):
        Mesh(chain, ticks=2)
    assert Mesh(chain).ticks == 3
    with pytest.raises(MeshError, match=r"output 1 .*neuron 5"):
        Mesh(Topology(1, 2, 2, [(0, 2), (2, 3), (3, 4)]))
    with pytest.raises(MeshError, match="no edges"):
        Mesh(Topology(1, 2, 2, []))


@pytest.mark.parametrize("activation", ["identity", "relu", "leaky_relu", "elu", "softplus"])
@pytest.mark.parametrize(("dtype", "big"), [("float32", 1e30), ("float64", 1e200)])
@pytest.mark.filterwarnings("ignore")  # numpy may warn on inf - inf in the tensor oracle
def test_overflow_shows(activation, dtype, big):
    """A state too large for the dtype is inf or nan in the result, never a finite number; others are what they are."""
    t = Topology.layered([1, 2, 2, 1], bias=False)
    m = Mesh(t, activation=activation, weights=np.full(t.n_edges, big), dtype=dtype)
    for B in (1, 7, 65):
        X = np.ones((B, 1))
        assert not np.isfinite(m.forward(X)).any()
        assert not np.isfinite(m.states(X)[-1][:, -1]).any()
        for method in ALL_METHODS:
            loss, grad = m.gradient(X, np.zeros((B, 1)), "squared_error", method)
            assert not np.isfinite(loss)
            assert not np.isfinite(grad).all()
    if activation == "identity":
        out = m.forward((np.arange(100) == 17)[:, None].astype(float))
        assert np.isinf(out[17, 0])
        assert (np.delete(out, 17) == 0).all()


@pytest.mark.parametrize("labels", [[True, False], np.array([0, 1], dtype=np.uint8), [0.0, 1.0]])
def test_labels_of_any_whole_kind(mesh, labels):
    X = [[1, 2, 3], [4, 5, 6]]
    assert mesh.gradient(X, labels)[0] == mesh.gradient(X, [int(v) for v in labels])[0]


def test_read_only_and_strided_data(mesh, batch):
    X, y = batch
    want = mesh.gradient(X, y)[1]
    frozen, strided = X.copy(), np.zeros((200, 6))
    frozen.setflags(write=False)
    strided[::2, ::2] = X
    for given in (frozen, strided[::2, ::2], X.tolist(), np.asfortranarray(X)):
        np.testing.assert_array_equal(mesh.gradient(given, y)[1], want)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: Topology.mesh(2, 5, 2, density="0.5"), "'0.5'"),
    (lambda: Topology.mesh(2, 5, 2, self_loops="no"), "self_loops"),
    (lambda: Topology.mesh(2, 5, 2, density=0.5, random_state=1.5), "random_state"),
    (lambda: Topology.mesh(2, 10**7, 2), "100,000,050,000,004 edges"),
    (lambda: Topology.cascade(2, 10**30, 2), "neurons"),
    (lambda: Topology.layered([10**6, 10**6]), "edges"),
    (lambda: Topology(10**30, 1, 1, []), "neurons"),
    (lambda: Topology.layered(None), "NoneType"),
    (lambda: Topology.layered({2, 3}), "set"),
    (lambda: Topology.layered([2, 2], bias="x"), "bias"),
    (lambda: Topology(1, 1, 1, None), "NoneType"),
    (lambda: Topology(1, 1, 1, iter([(0, 2)])), "list_iterator"),
    (lambda: Topology(1, 1, 1, np.zeros((2, 0))), "edges"),
    (lambda: Topology(1, 1, 1, [(0, float("inf"))]), "inf"),
    (lambda: Topology.from_adjacency([[1], [1, 2]], 1, 1), "square"),
    (lambda: Topology.from_adjacency(np.ma.array(np.eye(3), mask=np.eye(3)), 1, 1), "masked"),
    (lambda: Topology.from_networkx(None, [1], [2]), "NoneType"),
    (lambda: Topology.from_networkx(T.to_networkx(), {0, 1}, [8]), "set"),
    (lambda: T.check_reachable("3"), "ticks"),
    (lambda: T.dead_edges(3, awake=[1] * 10), "awake"),
    (lambda: Mesh([(0, 1)]), "list"),
    (lambda: Mesh(T).rewire(None), "NoneType"),
    (lambda: Mesh(T).forward([[10**400, 1]]), "numbers"),
    (lambda: Mesh(T).forward(np.ma.array([[1.0, 2.0]], mask=[[0, 1]])), "masked"),
    (lambda: Mesh(T).growth_scores([[1, 2]], [0], src=[True], dst=[3]), "neuron numbers"),
    (lambda: Mesh(T).growth_scores([[1, 2]], [0], src=[99], dst=[3]), "src"),
    (lambda: Mesh(T).growth_scores([[1, 2]], [0], src=[0, 1], dst=[3, 4, 5]), "broadcast"),
    (lambda: Mesh(T).forward([[1e300, 1]]), "float32"),
])  # fmt: skip
def test_odd_arguments_are_refused(call, message):
    with pytest.raises(MeshError, match=message):
        call()


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


@pytest.mark.parametrize(("given", "kept"), [(">f8", "f8"), (np.longdouble, "f8"), ("f4", "f4"), (int, "f4")])
def test_from_adjacency_keeps_wide_floats(given, kept):
    assert Mesh.from_adjacency(np.array([[0, 2.0], [0, 0.5]]).astype(given), 1, 1).dtype == kept
