"""Structure policies: exact budgets, edits that preserve the function, resuming."""

import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from sklearn.base import clone

import meshnn
from examples import examples
from meshnn import Mesh, MeshClassifier, MeshError, MeshRegressor, Topology, storage
from meshnn.plan import METHODS
from meshnn.storage import FileError
from meshnn.tables.synthetic import spirals
from meshnn.topology.pruning import blocks_of
from meshnn.training import Adam, Checkpoint, Settings, structure, train
from meshnn.training.api import as_samples
from meshnn.training.structure.choosing import weakest
from meshnn.training.structure.graph import Edit, apply_edit
from meshnn.training.structure.runtime import Structure
from row_sources import same

X, Y = spirals(120, random_state=0)
ADAM = {"solver": "adam", "batch_size": 32, "tol": 0.0, "random_state": 0}


def new_mesh(hidden=6, ticks=3, density=1.0, **more):
    topology = Topology.mesh(2, hidden, 2, density=density, random_state=1, **more)
    return Mesh(topology, ticks=ticks, activation="tanh", dtype="float64", random_state=0)


def view_of(mesh, policies=(), loss=1.0, epoch=1, max_epochs=10, y=Y):
    kind = "cross_entropy" if y.ndim == 1 else "squared_error"
    own = Structure(tuple(policies), mesh, as_samples(mesh, X, y, kind), max_epochs, np.random.default_rng(0))
    return own._view(epoch, loss)


@pytest.mark.parametrize("ticks", [2, 3, 4])
def test_growing_does_not_change_the_function(ticks):
    mesh = new_mesh(4, ticks, density=0.6)
    before, weights = mesh.forward(X), mesh.weights.copy()
    view = view_of(mesh)
    policy = structure.Grow(to=20)
    for _ in range(3):
        apply_edit(mesh, policy._neuron(view_of(mesh)))
        np.testing.assert_allclose(mesh.forward(X), before, rtol=0, atol=1e-12)
    assert mesh.topology.n_hidden == 7
    edges = structure.Grow(to=mesh.topology.n_edges + 5, neurons=False)
    apply_edit(mesh, edges._edges(view_of(mesh, [edges])))
    np.testing.assert_allclose(mesh.forward(X), before, rtol=0, atol=1e-12)
    assert set(weights) <= set(mesh.weights)
    assert view.mesh is mesh
    # training changes the new neurons
    _, grad = mesh.gradient(X, Y)
    new = np.isin(mesh.topology.src, mesh.topology.hidden[4:]) & ~mesh.dead_edges()
    assert np.abs(grad[new]).max() > 0


def layered(sizes, activation, starved, seed=0):
    """Return layers in which some hidden neurons are constant: only the bias, or other constant neurons, feed them."""
    whole = Topology.layered(sizes)
    at = np.asarray(starved) + whole.n_clamped
    cut = np.isin(whole.dst, at) & ~np.isin(whole.src, [*at, whole.n_inputs])
    t = Topology(whole.n_inputs, whole.n_hidden, whole.n_outputs, np.stack([whole.src, whole.dst], axis=1)[~cut])
    weights = np.random.default_rng(seed).standard_normal(t.n_edges)
    return Mesh(t, activation=activation, weights=weights, dtype="float64")


@pytest.mark.parametrize("activation", ["tanh", "relu", "sigmoid", "gauss", "identity"])
@pytest.mark.parametrize(("sizes", "starved", "idle"), [([2, 4, 2], [1, 2], 6), ([2, 4, 3, 2], [0, 5], 1 + 3 + 1 + 2)])
def test_constants_go_into_the_bias_of_what_they_feed(activation, sizes, starved, idle):
    mesh = layered(sizes, activation, starved)
    t, before = mesh.topology, mesh.forward(X)
    view = view_of(mesh)
    remove = weakest(view, np.abs(mesh.weights), idle, bias=False)
    at = np.asarray(starved) + t.n_clamped
    np.testing.assert_array_equal(remove, np.isin(t.src, at) | np.isin(t.dst, at))
    edit = Edit(remove, np.empty((0, 2), np.int64), np.empty(0), "", drop=True, shift=view.folded(remove))
    apply_edit(mesh, edit)
    assert mesh.topology.n_hidden == t.n_hidden - len(starved)
    np.testing.assert_allclose(mesh.forward(X), before, rtol=0, atol=1e-12)
    # a part of the edges: those from a constant neuron are removed before those into it
    mesh = layered(sizes, activation, starved)
    some = weakest(view_of(mesh), np.abs(mesh.weights), idle - 2, bias=False)
    apply_edit(mesh, edit._replace(remove=some, shift=view_of(mesh).folded(some)))
    np.testing.assert_allclose(mesh.forward(X), before, rtol=0, atol=1e-12)


def test_pruning_keeps_no_constant_neurons():
    """For any weights, the pruned graph has no dead edge and no constant neuron."""
    spent = 0
    for seed in range(20):
        mesh = Mesh(Topology.mesh(2, 6, 2), 3, "tanh", dtype="float64", random_state=seed)
        rng, to = np.random.default_rng(seed), 18 + seed
        own = Structure((structure.Prune(to=to),), mesh, as_samples(mesh, X, Y, "cross_entropy"), 40, rng)
        for epoch in range(1, 41):
            own.edit(epoch, 1.0)
            mesh.weights = rng.standard_normal(mesh.topology.n_edges)
        t = mesh.topology
        assert t.n_edges == to
        spent += int(mesh.dead_edges().sum()) + int((~np.isin(t.hidden, t.dst[t.src != 2])).sum())
    assert spent == 0


@pytest.mark.parametrize("by", structure.CRITERIA)
@pytest.mark.parametrize("solver", ["adam", "lm"])
def test_prune_ends_with_the_budget_and_regrow_keeps_it(by, solver):
    mesh = new_mesh(8)
    options = {"solver": solver, "batch_size": 32, "tol": 0.0, "max_epochs": 12, "random_state": 0}
    policies = [structure.Prune(to=40, by=by, end=0.5), structure.Regrow(every=2, end=0.9)]
    counts = [row.edges for row in train(mesh, X, Y, structure=policies, **options)]
    assert counts == sorted(counts, reverse=True)
    assert set(counts[6:]) == {40} == {mesh.topology.n_edges}
    mesh.topology.check_reachable(3)
    steps = mesh.lineage_.steps
    assert {step.reason for step in steps} == {f"pruned by {by}", "swapped for edges of large gradient"}
    assert all(len(step.added) == len(step.removed) > 0 for step in steps if step.epoch > 6)
    assert mesh.lineage_.edges_over_time()[-1][1] == 40


def test_sparsify_takes_out_what_vanishes():
    for l1, epochs in ((10.0, 20), (0.02, 60)):  # a penalty above all gradients makes all weights 0
        mesh = new_mesh(8)
        rows = list(train(mesh, X, Y, structure=structure.Sparsify(l1=l1), **ADAM | {"max_epochs": epochs}))
        assert [row.edges for row in rows] == sorted((row.edges for row in rows), reverse=True)
        assert (mesh.weights[mesh.topology.src != 2] == 0).sum() <= 4  # a path of two edges per output remains
        assert l1 < 1 or (mesh.topology.src != 2).sum() <= 4
    with pytest.raises(MeshError, match="lm"):
        list(train(new_mesh(), X, Y, structure=structure.Sparsify(l1=0.02), solver="lm"))


def test_moments_of_edges_that_stay_are_kept():
    mesh = new_mesh(8)
    samples = as_samples(mesh, X, Y, "cross_entropy")
    run = Adam().start(mesh, samples, Settings(solver="adam", batch_size=32, max_epochs=10), np.random.default_rng(0))
    run.advance(3)
    before, n = run.memory()["moments"], mesh.topology.n_edges
    change = apply_edit(mesh, Edit(np.arange(n) % 3 == 0, np.empty((0, 2), np.int64), np.empty(0), ""))
    assert len(change.edges) < n
    run.rewire(change)
    after = run.memory()["moments"]
    for name in ("first", "second"):
        assert np.any(after[name] != 0)
        np.testing.assert_array_equal(after[name], before[name][change.edges])
    assert after["done"] == before["done"]


policies = st.lists(
    st.one_of(
        st.builds(
            structure.Prune, to=st.sampled_from([30, 45, 0.5]), start=st.just("given"), end=st.sampled_from([0.3, 1.0]),
            by=st.sampled_from(structure.CRITERIA), bias=st.booleans(),
        ),
        st.builds(structure.Regrow, every=st.integers(1, 3), grow=st.sampled_from(["gradient", "random"])),
        st.builds(structure.Sparsify, l1=st.sampled_from([0.0, 0.02]), threshold=st.sampled_from([0.0, 0.05])),
        st.builds(structure.Grow, to=st.integers(1, 9), wait=st.integers(1, 2), slow=st.just(1.0),
                  candidates=st.just(2)),
    ),
    min_size=1,
    max_size=3,
)  # fmt: skip


@examples(25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(policies, st.integers(2, 4), st.integers(0, 10), st.booleans())
def test_invariants_of_any_schedule(chosen, ticks, seed, bias):
    topology = Topology.mesh(2, 6, 2, bias=bias, random_state=seed)
    mesh = Mesh(topology, ticks=ticks, activation="tanh", random_state=seed)
    try:
        for row in train(mesh, X, Y, structure=chosen, **ADAM | {"max_epochs": 8, "random_state": seed}):
            t = mesh.topology
            assert row.edges == t.n_edges == len(mesh.weights)
            t.check_reachable(ticks)
            assert (t.dst >= t.n_clamped).all()
            assert (t.src != t.dst).all()  # the first graph had no self-loops
            assert len(mesh.activations) == t.n_hidden + t.n_outputs
            np.testing.assert_array_equal(pairs_of(mesh.lineage_.last()), pairs_of(mesh.lineage_.named(t)))
    except MeshError as error:  # a budget above the number of edges is rejected
        if "cannot end with" not in str(error):
            raise
        return
    pruned = [p for p in chosen if isinstance(p, structure.Prune)]
    if len(chosen) == 1 and pruned and bias:
        want = round(pruned[0].to * topology.n_edges) if pruned[0].to < 1 else pruned[0].to
        assert mesh.topology.n_edges == want


def pairs_of(edges):
    return edges[np.lexsort(edges.T)]


def test_the_lineage_is_saved(tmp_path):
    model = MeshClassifier(6, ticks=3, max_epochs=12, structure=structure.Prune(to=30), **ADAM).fit(X, Y)
    model.save(tmp_path / "m.mesh")
    for back in (meshnn.load(tmp_path / "m.mesh"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(back.predict_proba(X), model.predict_proba(X))
        assert back.mesh_.lineage_.edges_over_time() == model.mesh_.lineage_.edges_over_time()
        assert back.structure == clone(model).structure == model.structure
    tree = model.mesh_.to_tree()
    lineage = tree["lineage"]
    for change in (
        {"first": lineage["first"][:0]},
        {"counts": lineage["counts"] + 1},
        {"hidden": lineage["hidden"][:-1]},
        {"added": lineage["added"].astype(float)},
    ):
        with pytest.raises(MeshError, match="lineage"):
            Mesh.from_tree(tree | {"lineage": lineage | change})


def test_estimators_with_a_budget():
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((200, 5))
    model = MeshRegressor(8, structure=structure.Prune(to=0.3), max_epochs=60, random_state=0)
    model.fit(Z, Z[:, 0] * Z[:, 1] + Z[:, 2])
    assert model.mesh_.topology.n_edges == round(0.3 * Topology.mesh(5, 8, 1).n_edges)
    assert model.score(Z, Z[:, 0] * Z[:, 1] + Z[:, 2]) > 0.3  # the linear part alone explains half of the variance
    sparse = Topology.mesh(2, 6, 2, density=0.2, random_state=0)
    first = MeshClassifier(mesh=sparse, structure=structure.Prune(to=30), max_epochs=1, **ADAM).fit(X, Y)
    assert first.mesh_.lineage_.edges_over_time()[0][1] == Topology.mesh(2, 6, 2).n_edges


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Topology.mesh(2, 3, 2).prune(2), "fraction .*"),
        (lambda: Topology.mesh(2, 3, 2).prune(0.5, {"X->H": 1}), "'X->H'"),
        (lambda: structure.Prune(to=0), "to .*0"),
        (lambda: structure.Prune(to=5, by="size"), "'size'"),
        (lambda: structure.Prune(to=5, begin=0.6, end=0.5), "begin .*0.6 and 0.5"),
        (lambda: structure.Regrow(fraction=2), "fraction .*2"),
        (lambda: structure.Sparsify(l1=-1), "l1 .*-1"),
        (lambda: structure.Grow(to=0), "to .*0"),
        (lambda: MeshClassifier(structure="prune").fit(X, Y), r"structure must be a policy \(Prune"),
        (lambda: MeshClassifier(structure=structure.Prune(to=9), n_restarts=2).fit(X, Y), "set n_restarts=1"),
        (lambda: MeshClassifier(2, structure=structure.Prune(to=999)).fit(X, Y), "cannot end with 999 edges"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(MeshError, match=message):
        make()


@pytest.mark.parametrize("gradient", METHODS)
def test_a_checkpoint_of_a_changing_graph_goes_on_with_any_method(gradient, tmp_path):
    path = tmp_path / "run.mesh"
    options = {"hidden": 5, "ticks": 3, "max_epochs": 12, "structure": structure.Prune(to=30)} | ADAM
    options["gradient"] = gradient

    def stop(row, mesh):
        if row.epoch == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="epoch 6"):
        MeshClassifier(**options, callbacks=[Checkpoint(path), stop]).fit(X, Y)
    assert storage.read(path)["training"]["state"]["members"][0]["solver"]["edited"] == gradient
    assert meshnn.load(path).mesh_.topology.n_edges > 30
    again = MeshClassifier(**options, callbacks=Checkpoint(path)).fit(X, Y)
    same(again, MeshClassifier(**options).fit(X, Y))
    with pytest.raises(FileError, match="another structure"):
        MeshClassifier(**options | {"structure": structure.Prune(to=31)}, callbacks=Checkpoint(path)).fit(X, Y)


def test_a_budget_that_cannot_be_met_is_reported():
    """Every output keeps a path from an input, so three outputs keep three edges; the edges of the bias remain."""
    Z, labels = np.random.default_rng(0).standard_normal((60, 4)), np.arange(60) % 3
    options = {"max_epochs": 10, "random_state": 0, "solver": "adam", "tol": 0}
    with pytest.warns(UserWarning, match=r"3 edges instead of 2"):
        model = MeshClassifier(2, structure=structure.Prune(to=2, bias=True), **options).fit(Z, labels)
    assert model.mesh_.topology.n_edges == 3
    with pytest.warns(UserWarning, match=r"instead of 2: .*bias"):
        MeshClassifier(2, structure=structure.Prune(to=2), **options).fit(Z, labels)
    MeshClassifier(2, structure=structure.Prune(to=20), **options).fit(Z, labels)  # no message


def test_pruning_before_training():
    dense = Topology.mesh(32, 50, 10, self_loops=True, feedback=False)
    blocks = {"I->H": 0.9, "H->H": 0.75, "H->O": 0.5}
    pruned = dense.prune(0.0, blocks, random_state=0)
    before, after = (dict(zip(*np.unique(blocks_of(t), return_counts=True), strict=True)) for t in (dense, pruned))
    for name in before:
        assert after[name] == before[name] - round(blocks.get(name, 0.0) * before[name]), name
    assert dense.prune(0.8, random_state=0) != dense.prune(0.8, random_state=1)
    assert dense.prune(1.0).n_edges == 60  # the bias remains
    assert dense.prune(1.0, {"B->H": 1.0}).n_edges == 10


def test_the_solver_is_chosen_with_the_penalty_of_policies_in_mind():
    many, labels = np.resize(X, (300, 2)) + np.linspace(0, 1, 300)[:, None], np.resize(Y, 300)
    options = {"hidden": 4, "ticks": 3, "max_epochs": 2, "l2": 1e-4, "random_state": 0}
    found = [
        MeshClassifier(**options | more).fit(many, labels)
        for more in ({"l1": 0.02}, {"structure": structure.Sparsify(l1=0.02)}, {"structure": structure.Prune(to=20)})
    ]
    assert [(each.solver_, each.mesh_.dtype.name) for each in found] == [("adam", "float32")] * 2 + [("lm", "float64")]
