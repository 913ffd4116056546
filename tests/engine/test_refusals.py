"""Invalid input of every kind: errors name the value and the fix; overflow is visible."""

import numpy as np
import pytest
from scipy import sparse

from cases import ALL_METHODS
from meshnn import Mesh, MeshError, Topology

NAN, INF = float("nan"), float("inf")
T = Topology.mesh(2, 5, 2)


ROW = [[1, 2, 3]]


@pytest.mark.parametrize(("X", "y", "options", "message"), [
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
    """A state that is too large for the dtype becomes inf or nan, never a finite number; other results are the same."""
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


@pytest.mark.parametrize(("call", "message"), [
    (lambda: Topology.mesh(2, 5, 2, self_loops="no"), "self_loops"),
    (lambda: Topology.mesh(2, 5, 2, density=0.5, random_state=1.5), "random_state"),
    (lambda: Topology.cascade(2, 10**30, 2), "neurons"),
    (lambda: Topology.layered([10**6, 10**6]), "edges"),
    (lambda: Topology.layered({2, 3}), "set"),
    (lambda: Topology.layered([2, 2], bias="x"), "bias"),
    (lambda: Topology.from_networkx(None, [1], [2]), "NoneType"),
    (lambda: T.check_reachable("3"), "ticks"),
    (lambda: T.dead_edges(3, awake=[1] * 10), "awake"),
    (lambda: Mesh([(0, 1)]), "list"),
    (lambda: Mesh(T).rewire(None), "NoneType"),
    (lambda: Mesh(T).growth_scores([[1, 2]], [0], src=[99], dst=[3]), "src"),
    (lambda: Mesh(T).growth_scores([[1, 2]], [0], src=[0, 1], dst=[3, 4, 5]), "broadcast"),
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


@pytest.mark.parametrize(("given", "kept"), [(">f8", "f8"), (np.longdouble, "f8"), ("f4", "f4"), (int, "f4")])
def test_from_adjacency_keeps_wide_floats(given, kept):
    assert Mesh.from_adjacency(np.array([[0, 2.0], [0, 0.5]]).astype(given), 1, 1).dtype == kept
