"""Graphs with memory and the nets built from them."""

import pickle

import networkx as nx
import numpy as np
import pytest
from hypothesis import given

from cases import topologies
from examples import examples
from meshnn import Mesh, MeshError, Topology, load, networks
from meshnn.training import train

MAKERS = {
    "columns": lambda **more: networks.columns(2, 3, 2, **more),
    "leaky columns": lambda **more: networks.columns(2, 3, 2, leaky=True, **more),
    "cascade": lambda **more: networks.cascade_of_columns(2, 4, 1, per_stage=2, **more),
    "leaky cascade": lambda **more: networks.cascade_of_columns(1, 3, 1, leaky=True, **more),
    "delay line": lambda **more: networks.delay_line(2, 3, 2, 1, **more),
    "slow delay line": lambda **more: networks.delay_line(1, 2, 2, 2, ticks_per_sample=2, **more),
    "recurrent": lambda **more: networks.recurrent(2, 2, 1, lags=1, **more),
    "recurrent with a layer": lambda **more: networks.recurrent(1, 2, 2, n_layer=2, **more),
    "reservoir": lambda **more: networks.reservoir(1, 5, 2, density=0.5, **more),
    "leaky reservoir": lambda **more: networks.reservoir(2, 4, 1, density=0.5, memory=(2, 6), **more),
}


def pairs(t):
    return set(zip(t.src.tolist(), t.dst.tolist(), strict=True))


def edge(net, i, j):
    """Return the index of an edge."""
    found = np.flatnonzero((net.topology.src == i) & (net.topology.dst == j))
    assert len(found) == 1
    return int(found[0])


# -- graphs --------------------------------------------------------------------------------------------------------


def test_columns_by_hand():
    t = Topology.columns(1, 2, 1)  # 0 is the input, 1 the bias, 2 and 3 columns, 4 the output
    assert pairs(t) == {(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4), (2, 2), (3, 3), (2, 4), (3, 4)}
    assert pairs(Topology.columns(1, 1, 1, bias=False)) == {(0, 1), (0, 2), (1, 1), (1, 2)}
    t = Topology.columns(
        1, 2, 1, leaky=True, bias=False
    )  # 1 and 2 are read neurons, 3 and 4 memory neurons, 5 the output
    assert pairs(t) == {(0, 1), (0, 2), (0, 5), (1, 3), (2, 4), (3, 3), (4, 4), (3, 5), (4, 5)}
    assert pairs(Topology.columns(1, 0, 1)) == {(0, 2), (1, 2)}


def test_a_cascade_of_columns_by_hand():
    t = Topology.cascade_of_columns(1, 3, 1, per_stage=2, bias=False)
    loops = {(1, 1), (2, 2), (3, 3)}
    assert pairs(t) == {(0, j) for j in (1, 2, 3, 4)} | loops | {(1, 3), (2, 3)} | {(j, 4) for j in (1, 2, 3)}
    t = Topology.cascade_of_columns(1, 2, 1, leaky=True, bias=False)  # 1 and 2 are read neurons, 3 and 4 memory neurons
    assert pairs(t) == {(0, 1), (0, 2), (0, 5), (1, 3), (2, 4), (3, 3), (4, 4), (3, 2), (3, 5), (4, 5)}
    assert Topology.cascade_of_columns(2, 5, 2, per_stage=5) == Topology.columns(2, 5, 2)
    without = {(i, j) for i, j in pairs(Topology.cascade_of_columns(2, 5, 2)) if i != j}
    assert without == pairs(Topology.cascade(2, 5, 2))


def test_a_delay_line_by_hand():
    t = Topology.delay_line(2, 2, 1, 1, bias=False)  # delay lines 2, 3 and 4, 5; layer 6; output 7
    seen = {(i, j) for i in (0, 1, 2, 3, 4, 5) for j in (6, 7)}
    assert pairs(t) == {(0, 2), (2, 3), (1, 4), (4, 5)} | seen | {(6, 7)}
    t = Topology.delay_line(1, 2, 0, 1, ticks_per_sample=2)  # input 0, bias 1, line 2 to 5 with taps 3 and 5, output 6
    assert pairs(t) == {(0, 2), (2, 3), (3, 4), (4, 5), (0, 6), (3, 6), (5, 6), (1, 6)}
    assert t.n_hidden == 4


def test_a_recurrent_net_by_hand():
    t = Topology.recurrent(1, 2, 1)  # input 0, bias 1, state neurons 4 and 5 with held copies 2 and 3, output 6
    state = {(i, j) for i in (0, 1, 2, 3) for j in (4, 5)}
    assert pairs(t) == {(4, 2), (5, 3)} | state | {(1, 6), (4, 6), (5, 6)}
    t = Topology.recurrent(1, 1, 1, n_layer=1, lags=1, bias=False)  # line 1 to 3, held 4, 5, state 6, layer 7, output 8
    lines = {(0, 1), (1, 2), (2, 3), (6, 4), (4, 5)}
    assert pairs(t) == lines | {(0, 6), (3, 6), (5, 6)} | {(0, 7), (6, 7), (7, 8)}


@pytest.mark.parametrize("leaky", [False, True])
def test_a_reservoir_keeps_exactly_the_density(leaky):
    t = Topology.reservoir(2, 20, 3, density=0.15, leaky=leaky, random_state=0)
    reads, outputs = set(range(3, 23)), set(t.outputs.tolist())
    keeps = set(range(23, 43)) if leaky else reads
    got = pairs(t)
    assert {(i, j) for i in range(3) for j in reads | outputs} <= got
    assert {(i, j) for i in keeps for j in outputs} <= got
    inner = {(i, j) for i, j in got if i in keeps and j in reads}
    assert len(inner) == 60
    wires = {(i, i + 20) for i in reads} | {(i, i) for i in keeps} if leaky else set()
    assert len(got) == 3 * 23 + 20 * 3 + 60 + len(wires)
    assert wires <= got
    assert t == Topology.reservoir(2, 20, 3, density=0.15, leaky=leaky, random_state=0)
    assert t != Topology.reservoir(2, 20, 3, density=0.15, leaky=leaky, random_state=1)


# -- components ----------------------------------------------------------------------------------------------------


@examples(60)
@given(t=topologies(ticks=8, most_hidden=7))
def test_components_and_the_cost_of_influence(t):
    graph = nx.DiGraph()
    graph.add_nodes_from(range(t.n_clamped, t.n_neurons))
    graph.add_edges_from((i, j) for i, j in pairs(t) if min(i, j) >= t.n_clamped)
    got = t.components()
    assert (got[: t.n_clamped] == -1).all()
    want = {frozenset(c) for c in nx.strongly_connected_components(graph)}
    assert {frozenset(np.flatnonzero(got == c).tolist()) for c in range(got.max() + 1)} == want
    assert all(got[i] <= got[j] for i, j in graph.edges)
    learned = np.arange(t.n_edges) % 3 > 0
    for mask in (np.ones(t.n_edges, bool), learned):
        chosen = [d for d in t.dst[mask].tolist() if d >= t.n_clamped]
        cost = 0
        for i, _ in graph.edges:
            above = nx.ancestors(graph, i) | {i}
            cost += sum(d in above for d in chosen)
        assert t.influence_cost(mask) == cost
    assert t.influence_cost() == t.influence_cost(np.ones(t.n_edges, bool))


def test_influence_cost_of_columns():
    """The cost is the sum of fan-in over edges for any number of columns; fixed edges cost nothing."""
    assert Topology.columns(3, 1000, 1).influence_cost() == 2 * 1000 * 5
    line = networks.delay_line(1, 20, 4, 1)
    assert line.topology.influence_cost(~line.ties.fixed) == 4 * (1 + 20 + 1)
    echo = networks.reservoir(1, 30, 2, random_state=0)
    assert echo.topology.influence_cost(~echo.ties.fixed) == 0


# -- nets ----------------------------------------------------------------------------------------------------------


def test_self_loops_begin_as_time_constants():
    net = networks.columns(1, 4, 1, memory=(2, 16), dtype="float64", random_state=0)
    loops = [net.weights[edge(net, k, k)] for k in net.topology.hidden]
    np.testing.assert_allclose(loops, [1 - 1 / 2, 1 - 1 / 4, 1 - 1 / 8, 1 - 1 / 16], rtol=1e-12)
    assert net.n_parameters == net.topology.n_edges
    assert net.activations == ["tanh"] * 4 + ["identity"]


def test_leaks_are_fixed():
    net = networks.columns(1, 2, 1, memory=(2, 4), leaky=True, dtype="float64", random_state=0)
    first, second = (2, 4), (3, 5)  # read neurons and memory neurons
    for (reads, keeps), tau in ((first, 2), (second, 4)):
        assert net.weights[edge(net, reads, keeps)] == pytest.approx(1 / tau, rel=1e-12)
        assert net.weights[edge(net, keeps, keeps)] == pytest.approx(1 - 1 / tau, rel=1e-12)
    fixed = {pair for pair, p in zip(zip(net.topology.src.tolist(), net.topology.dst.tolist(), strict=True),
                                     net.tied, strict=True) if p < 0}  # fmt: skip
    assert fixed == {(2, 4), (4, 4), (3, 5), (5, 5)}
    assert net.activations == ["tanh", "tanh", "identity", "identity", "identity"]


@pytest.mark.parametrize("stay", [1, 2, 3])
def test_a_delay_line_delays(stay):
    """Tap m holds exactly the sample m steps before the one that its readers receive at the same time."""
    length, samples = 3, 6
    net = networks.delay_line(2, length, 1, 1, ticks_per_sample=stay, ticks=samples * stay, random_state=0)
    x = np.random.default_rng(0).standard_normal((samples, 1, 2)).astype(np.float32)
    states = net.states(np.repeat(x, stay, axis=0))[:, 0]
    t = net.topology
    for i in range(2):
        taps = t.n_clamped + i * length * stay + stay * np.arange(1, length + 1) - 1
        for k in range(samples * stay):  # the states that tick k + 1 reads
            now = k // stay
            assert states[k, i] == x[now, 0, i]
            want = [x[now - m, 0, i] if now >= m else 0.0 for m in range(1, length + 1)]
            assert states[k, taps].tolist() == want
    assert set(np.unique(net.weights[net.ties.fixed])) == {1.0}
    assert net.ties.fixed.sum() == 2 * length * stay
    assert (t.dst[net.ties.fixed] < t.n_clamped + 2 * length * stay).all()


@pytest.mark.parametrize("stay", [1, 2])
def test_a_stream_holds_the_samples_of_a_delay_line_for_its_ticks(stay, tmp_path):
    net = networks.delay_line(1, 2, 0, 1, ticks_per_sample=stay, bias=False, dtype="float64")
    net.parameters = [1.0, 10.0, 100.0]  # y = x(t) + 10 x(t-1) + 100 x(t-2)
    net.save(tmp_path / "line.mesh")
    for same in (net, pickle.loads(pickle.dumps(net)), load(tmp_path / "line.mesh")):
        assert same.stream().run([[7.0], [8.0], [9.0], [1.0]]).ravel().tolist() == [7.0, 78.0, 789.0, 891.0]
        assert same.stream(ticks_per_sample=5).ticks_per_sample == 5
    with pytest.raises(MeshError, match="ticks_per_sample"):
        Mesh.from_tree(net.to_tree() | {"ticks_per_sample": 0})


@pytest.mark.parametrize(("n", "memory"), [(30, None), (30, (2, 9)), (450, None)])
def test_spectral_radius_and_scale_of_a_reservoir(n, memory):
    net = networks.reservoir(2, n, 1, density=0.2, spectral_radius=0.8, input_scale=0.3, memory=memory,
                             dtype="float64", random_state=4)  # fmt: skip
    A, t = net.adjacency().toarray(), net.topology
    reads = slice(3, 3 + n)
    keeps = reads if memory is None else slice(3 + n, 3 + 2 * n)
    W = A[keeps, reads]
    assert np.abs(np.linalg.eigvals(W)).max() == pytest.approx(0.8, rel=1e-6)
    outside = A[:3, reads]
    assert np.abs(outside).max() <= 0.3
    assert outside.std() > 0.1
    assert net.n_parameters == n + 3  # the edges of one output
    assert (t.dst[~net.ties.fixed] == t.outputs[0]).all()
    if memory is not None:
        tau = np.geomspace(2, 9, n)
        np.testing.assert_allclose(np.diag(A)[keeps], 1 - 1 / tau)
        np.testing.assert_allclose(np.diag(A[reads, keeps]), 1 / tau)


def test_dead_edges_of_a_delay_line():
    """Two ticks only reach the first tap: x -> y, bias -> y, x -> tap and tap -> y are live."""
    net = networks.delay_line(1, 3, 0, 1, ticks=2)
    alive = {(int(net.topology.src[e]), int(net.topology.dst[e])) for e in np.flatnonzero(~net.dead_edges())}
    assert alive == {(0, 5), (1, 5), (0, 2), (2, 5)}
    assert len(net.live_parameters()) == 3
    whole = networks.delay_line(1, 3, 0, 1)
    assert (whole.ticks, int(whole.dead_edges().sum())) == (4, 0)


@pytest.mark.parametrize("name", MAKERS)
def test_learning_leaves_what_is_fixed(name):
    net = MAKERS[name](random_state=0)
    fixed, before = net.ties.fixed, net.weights.copy()
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, net.topology.n_inputs)), rng.standard_normal((20, net.topology.n_outputs))
    assert len(list(train(net, X, y, loss="squared_error", solver="adam", max_epochs=3, random_state=0)))
    np.testing.assert_array_equal(net.weights[fixed], before[fixed])
    assert (net.weights[~fixed] != before[~fixed]).any()


@pytest.mark.parametrize(
    ("make", "value"),
    [
        (lambda: networks.columns(1, 2, 1, memory=5), "memory"),
        (lambda: networks.columns(1, 2, 1, memory=(1, 2, 3)), r"\(1, 2, 3\)"),
        (lambda: networks.columns(1, 2, 1, memory=(0.5, 3)), "0.5"),
        (lambda: networks.columns(1, 2, 1, memory=(9, 3)), r"\(9, 3\)"),
        (lambda: networks.columns(1, -2, 1), "-2"),
        (lambda: networks.columns(1, 2, 1, activation="tan"), "'tanh'"),
        (lambda: networks.cascade_of_columns(1, 2, 1, per_stage=0), "per_stage"),
        (lambda: networks.delay_line(1, 0, 2, 1), "length"),
        (lambda: networks.delay_line(1, 2, 2, 1, ticks_per_sample=0), "ticks_per_sample"),
        (lambda: networks.reservoir(1, 9, 1, density=2), "density"),
        (lambda: networks.reservoir(1, 9, 1, spectral_radius=0), "spectral_radius"),
        (lambda: networks.reservoir(1, 9, 1, input_scale="x"), "'x'"),
        (lambda: networks.reservoir(1, 2, 1), "has no cycle"),
        (lambda: Topology.reservoir(1, -1, 1), "n_neurons"),
        (lambda: Topology.columns(1, 2, 1, leaky=1), "leaky"),
        (lambda: Topology.columns(1, 2, 1).influence_cost([True, False]), "learned"),
    ],
)
def test_what_is_refused(make, value):
    with pytest.raises(MeshError, match=value):
        make()
