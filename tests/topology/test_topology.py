import json
import pickle

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from cases import ACTIVATION_NAMES, topologies
from examples import examples
from meshnn import Mesh, MeshError, Topology


def pairs(t):
    return set(zip(t.src.tolist(), t.dst.tolist(), strict=True))


def test_layout():
    t = Topology(2, 3, 2, [(0, 3), (5, 0)])
    assert (t.n_neurons, t.n_edges, t.bias) == (8, 2, True)
    assert t.inputs.tolist() == [0, 1]
    assert t.hidden.tolist() == [3, 4, 5]
    assert t.outputs.tolist() == [6, 7]
    assert Topology(2, 3, 2, [], bias=False).n_neurons == 7


@examples(50)
@given(t=topologies(ticks=8))
def test_edges_are_sorted_by_destination_then_source(t):
    keys = t.dst * t.n_neurons + t.src
    assert (np.diff(keys) > 0).all()
    with pytest.raises(ValueError, match="read-only"):
        t.src[:1] = 0
    with pytest.raises(AttributeError, match="frozen"):
        t.n_inputs = 5


@pytest.mark.parametrize(("density", "edges"), [(0.15, 798), (0.20, 1044), (1.0, 4980)])
def test_mesh_counts_of_the_paper(density, edges):
    t = Topology.mesh(32, 50, 10, density=density, self_loops=True, feedback=False, random_state=1)
    assert t.n_edges == edges
    assert t.dst.min() >= t.n_clamped
    assert t.src.max() < t.outputs[0]
    assert np.count_nonzero(t.src == 32) == 60  # all bias edges


@given(
    sizes=st.tuples(st.integers(1, 4), st.integers(0, 5), st.integers(1, 3)),
    density=st.floats(0, 1),
    self_loops=st.booleans(),
    feedback=st.booleans(),
    bias=st.booleans(),
)
def test_mesh_keeps_exactly_the_density_of_the_allowed(sizes, density, self_loops, feedback, bias):
    n_in, n_h, n_out = sizes
    first = n_in + bias
    hidden, outputs = range(first, first + n_h), range(first + n_h, first + n_h + n_out)
    allowed = {(i, j) for i in [*range(n_in), *hidden] for j in [*hidden, *outputs] if i != j or self_loops}
    allowed |= {(o, h) for o in outputs for h in hidden if feedback}
    biases = {(n_in, j) for j in [*hidden, *outputs]} if bias else set()
    t = Topology.mesh(*sizes, density=density, self_loops=self_loops, feedback=feedback, bias=bias, random_state=0)
    got = pairs(t)
    assert biases <= got
    assert got - biases <= allowed
    assert len(got - biases) == round(density * len(allowed))


def test_mesh_is_seeded():
    def draw(seed):
        return Topology.mesh(5, 20, 3, density=0.3, random_state=seed)

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)
    assert len({draw(1), draw(1), draw(2)}) == 2


def test_a_sparse_mesh_of_many_neurons_is_drawn_without_listing_all_pairs():
    t = Topology.mesh(10, 200_000, 10, density=1e-5, bias=False, random_state=0)
    assert t.n_edges == round(1e-5 * (200_000 * (10 + 199_999 + 10) + 10 * 200_010))


def test_cascade():
    t = Topology.cascade(2, 3, 1)
    hidden = {(3, 4), (3, 5), (4, 5), (3, 6), (4, 6), (5, 6)}
    assert pairs(t) == {(i, j) for i in (0, 1, 2) for j in (3, 4, 5, 6)} | hidden
    assert t.default_ticks() == 4


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array, sparse.coo_matrix, sparse.lil_array])
def test_from_adjacency(make):
    A = np.array([[0, 1.5, 0], [0, -1, 2], [0.5, 0, 0]])
    t = Topology.from_adjacency(make(A), 1, 1)
    assert pairs(t) == {(0, 1), (1, 1), (1, 2), (2, 0)}
    assert Topology.from_adjacency(make(A), 1, 1, bias=True).n_hidden == 0


@examples(30)
@given(t=topologies(ticks=8), data=st.data())
def test_networkx_round_trip(t, data):
    graph = t.to_networkx()
    assert [graph.nodes[k]["role"] for k in range(t.n_neurons)] == (
        ["input"] * t.n_inputs + ["bias"] * t.bias + ["hidden"] * t.n_hidden + ["output"] * t.n_outputs
    )
    assert Topology.from_networkx(graph) == t
    assert Topology.from_networkx(graph, t.inputs.tolist(), t.outputs.tolist()) == t
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    tied = np.unique(rng.integers(-1, 4, t.n_edges), return_inverse=True)[1] - 1
    for parameter in (None, tied):
        dtype = str(rng.choice(["float32", "float64"]))
        mesh = Mesh(t, 8, dtype=dtype, random_state=0, tied=parameter)
        mesh.activations = rng.choice(ACTIVATION_NAMES, t.n_hidden + t.n_outputs).tolist()
        back = Mesh.from_networkx(pickle.loads(pickle.dumps(mesh.to_networkx())))
        assert (back.topology, back.ticks, back.dtype) == (t, 8, mesh.dtype)
        assert back.activations == mesh.activations
        np.testing.assert_array_equal(back.weights, mesh.weights)
        np.testing.assert_array_equal(back.tied, mesh.tied)


def test_a_mesh_of_a_graph_with_weights_alone(tmp_path):
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([("x", "h", 2.0), ("one", "h", 1.0), ("h", "y", 3.0)])
    mesh = Mesh.from_networkx(graph, ["x"], ["y"], "one")
    assert mesh.forward([[5.0]]).tolist() == [[33.0]]
    nx.write_graphml(mesh.to_networkx(), tmp_path / "mesh.graphml")
    again = Mesh.from_networkx(nx.read_graphml(tmp_path / "mesh.graphml"))
    assert again.forward([[5.0]]).tolist() == [[33.0]]
    with pytest.raises(MeshError, match="role='input'"):
        Mesh.from_networkx(graph)
    with pytest.raises(MeshError, match="weight"):
        Mesh.from_networkx(nx.DiGraph([("x", "y")]), ["x"], ["y"])


def test_from_networkx_by_name():
    graph = nx.DiGraph([("x", "h"), ("h", "y"), ("one", "h")])
    misspelt = graph.copy()
    nx.set_node_attributes(misspelt, {"x": "input", "h": "output", "y": "outptu"}, "role")
    t = Topology.from_networkx(graph, inputs=["x"], outputs=["y"], bias="one")
    assert pairs(t) == {(0, 2), (2, 3), (1, 2)}
    assert t.bias
    for bad, message in [
        ((nx.Graph(graph), ["x"], ["y"]), "to_directed"),
        ((nx.MultiDiGraph(graph), ["x"], ["y"]), "multigraph"),
        ((graph, ["z"], ["y"]), "'z'"),
        ((graph, ["x"], ["x"]), "'x'"),
        ((misspelt, None, None), "outptu"),
    ]:
        with pytest.raises(MeshError, match=message):
            Topology.from_networkx(*bad)


@examples(30)
@given(t=topologies(ticks=8))
def test_dict_and_pickle_round_trip(t):
    assert Topology.from_dict(json.loads(json.dumps(t.to_dict()))) == t
    assert pickle.loads(pickle.dumps(t)) == t


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ({"version": 99}, "99"),
        ({"format": "x"}, "'x'"),
        ({"edges": [[0, 99]]}, "99"),
        ({"bias": "yes"}, "'yes'"),
        ({"n_inputs": -1}, "-1"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_wrong_dictionary_is_refused(change, value):
    with pytest.raises(MeshError, match=value):
        Topology.from_dict(Topology.cascade(2, 2, 1).to_dict() | change)


# -- reach -------------------------------------------------------------------------------------------------------


def influences(t, ticks):
    """Return the edges on any path from an input to an output at the last tick, by enumeration of the paths."""
    alive = set()
    live = [set(range(t.n_clamped))]
    for _ in range(ticks):
        live.append({j for i, j in pairs(t) if i in live[-1] or i < t.n_clamped} - set(range(t.n_clamped)))
    need = set(t.outputs.tolist())
    for k in range(ticks, 0, -1):
        sources = live[k - 1] | set(range(t.n_clamped))
        alive |= {(i, j) for i, j in pairs(t) if i in sources and j in need}
        need = {i for i, j in pairs(t) if j in need and i >= t.n_clamped}
    return alive


@examples(150)
@given(ticks=st.integers(1, 7), data=st.data())
def test_dead_edges_equal_the_walk(ticks, data):
    t = data.draw(topologies(ticks))
    alive = influences(t, ticks)
    want = [pair not in alive for pair in zip(t.src.tolist(), t.dst.tolist(), strict=True)]
    assert t.dead_edges(ticks).tolist() == want


@examples(100)
@given(t=topologies(ticks=8))
def test_default_ticks(t):
    relevant = {(i, j) for i, j in pairs(t) if j >= t.n_clamped}
    graph = nx.DiGraph(list(relevant))
    graph.add_nodes_from(range(t.n_neurons))
    sources, sinks = set(range(t.n_clamped)), set(t.outputs.tolist())
    forth = sources.union(*(nx.descendants(graph, s) for s in sources))
    back = sinks.union(*(nx.ancestors(graph, s) for s in sinks))
    graph = graph.subgraph(forth & back).copy()
    if nx.is_directed_acyclic_graph(graph):
        length = dict.fromkeys(graph, 0)
        for node in nx.topological_sort(graph):
            for after in graph.successors(node):
                length[after] = max(length[after], length[node] + 1)
        want = max(length[o] for o in sinks if o in graph)
    else:
        final = influences(t, 40)
        want = next(k for k in range(1, 41) if influences(t, k) == final)
    assert t.default_ticks() == want


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ((1, 1, 0, []), "n_outputs"),
        ((0, 1, 1, []), "n_inputs"),
        ((1.5, 1, 1, []), "1.5"),
        ((1, -1, 1, []), "-1"),
        ((1, 1, 1, [(0, 9)]), r"\(0, 9\)"),
        ((1, 1, 1, [(0, -1)]), r"\(0, -1\)"),
        ((1, 1, 1, [(0, 2), (0, 2)]), r"\(0, 2\) is given twice"),
        ((1, 1, 1, [(0, 2.5)]), "2.5"),
        ((1, 1, 1, [(0, 2, 1)]), "pairs"),
        ((1, 1, 1, [(0, 2), (1,)]), "pairs"),
        ((1, 1, 1, np.ma.masked_array([(0, 2)])), "pairs"),
        ((1, 1, 1, iter([(0, 2)])), "pairs"),
        ((1, 1, 1, [("a", "b")]), "'a'"),
        ((1, 1, 1, [(0, np.nan)]), "nan"),
    ],
)
def test_a_wrong_topology_is_refused(arguments, value):
    with pytest.raises(MeshError, match=value):
        Topology(*arguments)


@pytest.mark.parametrize(
    ("build", "value"),
    [
        (lambda: Topology.mesh(2, 2, 1, density=1.5), "1.5"),
        (lambda: Topology.mesh(2, 2, 1, density=float("nan")), "nan"),
        (lambda: Topology.mesh(2, 10**12, 1), "neurons|edges"),
        (lambda: Topology.cascade(1, 10**6, 1), "500,002,500,002 edges"),
        (lambda: Topology.layered([3]), "3"),
        (lambda: Topology.layered([3, 0, 1]), r"sizes\[1\]"),
        (lambda: Topology.from_adjacency(np.zeros((2, 3)), 1, 1), r"\(2, 3\)"),
        (lambda: Topology.from_adjacency(np.zeros(4), 1, 1), "square"),
        (lambda: Topology.from_adjacency([[1.0], [1.0, 2.0]], 1, 1), "square"),
        (lambda: Topology.from_adjacency(np.ma.masked_array(np.eye(2)), 1, 1), "masked"),
        (lambda: Topology.from_adjacency(np.zeros((2, 2)), 2, 1), "2 inputs"),
        (lambda: Topology.from_adjacency([["a"]], 1, 1), "numbers"),
        (lambda: Topology.cascade(2, 2, 1).dead_edges(0), "got 0"),
    ],
)
def test_a_wrong_builder_call_is_refused(build, value):
    with pytest.raises(MeshError, match=value):
        build()
