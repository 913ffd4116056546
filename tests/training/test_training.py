"""The trainer and its first-order solvers, against the same steps in NumPy."""

import numpy as np
import pytest

from meshnn import Mesh, MeshError, Topology
from meshnn.plan import METHODS
from meshnn.tables.synthetic import spirals
from meshnn.training import LM, SGD, Adam, EarlyStopping, History, Settings, Trainer, structure, train
from meshnn.training.api import as_samples
from solver_options import with_solver


class ByHand:
    """Adam and momentum in float64, with the gradient of `Mesh.gradient`, which other tests verify."""

    def __init__(self, mesh, solver, rate, *, l1=0.0, l2=0.0, momentum=0.9, nesterov=True):
        self.mesh, self.solver, self.rate = mesh, solver, rate
        self.l1, self.l2, self.momentum, self.nesterov = l1, l2, momentum, nesterov
        t = mesh.topology
        self.counts = np.array([1.0 if not t.bias or s != t.n_inputs else 0.0 for s in t.src])
        self.a, self.b, self.k = np.zeros(t.n_edges), np.zeros(t.n_edges), 0

    def step(self, X, y, sample_weight=None, loss="cross_entropy", scale=1.0):
        value, g = self.mesh.gradient(X, y, loss, gradient="adjoint", sample_weight=sample_weight)
        w = self.mesh.weights.copy()
        g = scale * g + self.l2 * self.counts * w
        self.k += 1
        if self.solver == "adam":
            self.a = 0.9 * self.a + 0.1 * g
            self.b = 0.999 * self.b + 0.001 * g * g
            each = self.rate / (np.sqrt(self.b / (1 - 0.999**self.k)) + 1e-8)
            w = w - each * self.a / (1 - 0.9**self.k)
        else:
            each = self.rate
            self.a = self.momentum * self.a + g
            w = w - self.rate * (g + self.momentum * self.a if self.nesterov else self.a)
        least = each * self.l1 * self.counts
        self.mesh.weights = np.sign(w) * np.maximum(np.abs(w) - least, 0)
        return value, float(np.linalg.norm(g))


def pair(ticks=3, n_outputs=2, **options):
    t = Topology.mesh(2, 6, n_outputs)
    start = np.random.default_rng(0).standard_normal(t.n_edges) * 0.5
    return [Mesh(t, ticks, "tanh", weights=start, dtype="float64", **options) for _ in range(2)]


@pytest.mark.parametrize("ticks", [1, 2, 5])
@pytest.mark.parametrize("options", [
    {"solver": "adam"},
    {"solver": "adam", "l2": 0.01},
    {"solver": "adam", "l1": 0.01},
    {"solver": "sgd"},
    {"solver": "sgd", "nesterov": False, "momentum": 0.5, "l1": 0.01, "l2": 0.02},
])  # fmt: skip
def test_full_batches_equal_steps_by_hand(ticks, options):
    options = {"l2": 0.0} | options
    mesh, other = pair(ticks)
    X, y = spirals(150, random_state=0)
    X /= 10
    given = with_solver(options | {"schedule": "constant", "learning_rate": 0.02})
    rows = list(train(mesh, X, y, batch_size=None, max_epochs=30, tol=0, **given))
    hand = ByHand(other, rate=0.02, **options)
    met = [hand.step(X, y) for _ in range(30)]
    np.testing.assert_allclose(mesh.weights, other.weights, rtol=1e-9, atol=1e-12)
    assert [row.epoch for row in rows] == list(range(1, 31))
    w = other.weights * hand.counts
    penalty = hand.l1 * np.abs(w).sum() + hand.l2 / 2 * (w**2).sum()
    assert rows[-1].loss == pytest.approx(other.gradient(X, y)[0] + penalty, rel=1e-9)
    assert rows[-1].accuracy == pytest.approx(np.mean(other.forward(X).argmax(axis=1) == y))
    assert rows[-1].gradient_norm == pytest.approx(met[-1][1], rel=1e-7)
    if options.get("l1"):
        np.testing.assert_array_equal(mesh.weights == 0, other.weights == 0)


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_momentum_under_a_schedule_is_that_by_hand(schedule):
    mesh, other = pair()
    X, y = spirals(150, random_state=0)
    X /= 10
    list(train(mesh, X, y, solver=SGD(0.1, schedule), batch_size=None, max_epochs=50, l2=0.0, tol=0))
    shares = {"cosine": lambda k: 0.5 * (1 + np.cos(np.pi * k / 50)), "linear": lambda k: 1 - k / 50}
    hand = ByHand(other, "sgd", 0.1)
    for k in range(50):
        hand.rate = 0.1 * shares[schedule](k)
        hand.step(X, y)
    np.testing.assert_allclose(mesh.weights, other.weights, rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [1, 7, 64, 149])
@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error"])
def test_mini_batches_equal_steps_by_hand(size, loss):
    mesh, other = pair()
    X, y = spirals(150, random_state=0)
    X /= 10
    weight = np.random.default_rng(5).random(150) + 0.5
    target = y if loss == "cross_entropy" else np.stack([y, 1.0 - y], axis=1)
    seed = int(np.random.default_rng(3).integers(2**63))
    rows = list(train(mesh, X, target, loss, solver=Adam(0.01, "linear"), batch_size=size, max_epochs=3, tol=0,
                      sample_weight=weight, random_state=np.random.default_rng(3), l2=0.0))  # fmt: skip
    order, hand = np.random.default_rng(seed), ByHand(other, "adam", 0.01)
    batches, shares = -(-150 // size), weight / weight.mean()
    for epoch in range(3):
        permutation, met, hits = order.permutation(150), 0.0, 0.0
        for b in range(batches):
            hand.rate = 0.01 * (1 - (epoch * batches + b) / (3 * batches))
            at = permutation[b * size : (b + 1) * size]
            hits += (shares[at] * (other.forward(X[at]).argmax(axis=1) == y[at])).sum() / 150
            # the mean of a batch is over its samples; the weights have mean 1 over the whole set
            value, _ = hand.step(X[at], target[at], weight[at], loss, shares[at].mean())
            met += value * shares[at].sum() / 150
        assert rows[epoch].loss == pytest.approx(met, rel=1e-9)
        if loss == "cross_entropy":
            assert rows[epoch].accuracy == pytest.approx(hits, rel=1e-9)
        else:
            assert np.isnan(rows[epoch].accuracy)
    np.testing.assert_allclose(mesh.weights, other.weights, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("size", [None, 3500])
def test_large_batches_give_the_same_bits_with_any_number_of_threads(size):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((9000, 8)), rng.integers(0, 3, 9000)
    found = []
    for n_jobs in (1, 2, 3, None):
        mesh = Mesh(Topology.layered([8, 40, 3]), activation="tanh", random_state=0)
        settings = {"solver": SGD(0.2), "batch_size": size, "max_epochs": 3, "l2": 0.0}
        *_, row = train(mesh, X, y, n_jobs=n_jobs, random_state=0, **settings)
        found.append((mesh.weights, row.loss))
    for weights, loss in found[1:]:
        np.testing.assert_array_equal(weights, found[0][0])
        assert loss == found[0][1]


@pytest.mark.parametrize("gradient", [*METHODS, "forward"])
@pytest.mark.parametrize("size", [None, 40])
def test_every_gradient_method_trains_alike(gradient, size):
    mesh, other = pair(4)
    X, y = spirals(100, random_state=0)
    options = {"solver": "adam", "batch_size": size, "l2": 1e-3, "max_epochs": 5, "random_state": 1}
    for m, method in ((mesh, gradient), (other, "auto")):
        list(train(m, X / 10, y, gradient=method, **options))
    np.testing.assert_allclose(mesh.weights, other.weights, rtol=1e-8, atol=1e-11)


def test_rows_tol_patience_and_schedules():
    X, y = spirals(100, random_state=0)
    mesh = Mesh(Topology.mesh(2, 5, 2), activation="tanh", random_state=0)
    rows = list(train(mesh, X / 10, y, solver="adam", batch_size=None, max_epochs=1050, tol=0))
    assert [row.epoch for row in rows[:3]] == [10, 20, 30]
    assert rows[-1].epoch == 1050
    assert len(rows) == 105
    mini = list(train(mesh, X / 10, y, solver="adam", batch_size=30, max_epochs=7, tol=0))
    assert [row.epoch for row in mini] == list(range(1, 8))
    assert mini[0].learning_rate > mini[-1].learning_rate >= 0
    constant = list(train(mesh, X / 10, y, solver=Adam(schedule="constant"), batch_size=30, max_epochs=7, tol=0))
    assert {row.learning_rate for row in constant} == {Adam().learning_rate}
    # no improvement: training stops after `patience` epochs
    flat = list(train(mesh, X / 10, y, solver=SGD(1e-12, "constant"), batch_size=30, patience=5, max_epochs=50))
    assert flat[-1].epoch == 6
    assert flat[-1].note == "stopped: the loss fell by less than 0.0001 in 5 epochs"


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
@pytest.mark.parametrize(("size", "patience", "most", "epochs"), [(30, 5, 200, 5), (30, 60, 200, 12), (None, 5, 400, 5),
                                                                  (30, 5, 9, 3)])  # fmt: skip
def test_the_rate_is_lowered_before_patience_ends_a_run(schedule, size, patience, most, epochs):
    """The learning rate is too small for any improvement, so patience ends at once."""
    X, y = spirals(100, random_state=0)
    mesh = Mesh(Topology.mesh(2, 5, 2), activation="tanh", random_state=0)
    rows = list(train(mesh, X / 10, y, solver=Adam(1e-12, schedule), batch_size=size,
                      patience=patience, max_epochs=most, l2=0.0, random_state=0))  # fmt: skip
    said = [(row.epoch, row.note) for row in rows if row.note]
    reason = f"the loss fell by less than 0.0001 in {patience} epochs"
    first = said[0][0]
    assert said == [(first, f"{reason}: the learning rate is reduced to 0 over {epochs} epochs"),
                    (first + epochs, f"stopped: {reason}")]  # fmt: skip
    before = Adam(schedule=schedule).schedule_factor(first / most)
    batches = 1 if size is None else 4
    for row in rows:
        if row.epoch > first:
            last = Adam(schedule=schedule).schedule_factor((row.epoch - first - 1 / batches) / epochs)
            assert row.learning_rate == pytest.approx(1e-12 * before * last, rel=1e-6, abs=0)


@pytest.mark.parametrize("options", [{"solver": "lm"}, {"solver": "adam", "batch_size": 8}, {"solver": "sgd"}])
def test_validation_keeps_the_best_weights(options):
    """The hold-out labels are inverted: a lower training loss means a higher validation loss."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 2)), rng.integers(0, 2, 40)
    mesh = Mesh(Topology.mesh(2, 10, 2), 3, "tanh", dtype="float64", random_state=0)
    seen, rows = [], []
    for row in train(mesh, X, y, validation=(X, 1 - y), max_epochs=40, tol=0, l2=0.0, random_state=0, **options):
        rows.append(row)
        seen.append(mesh.weights.copy())
    losses = [row.validation for row in rows]
    best = int(np.argmin(losses))
    assert best < len(rows) - 1  # the last row is not the best one
    kept, accuracy = mesh.gradient(X, 1 - y)[0], np.mean(mesh.forward(X).argmax(axis=1) == 1 - y)
    assert kept == pytest.approx(losses[best], rel=1e-9)
    assert accuracy == pytest.approx(rows[best].accuracy)
    np.testing.assert_array_equal(mesh.weights, seen[best])


def test_divergence_takes_back_halves_and_gives_up_with_advice():
    X, y = spirals(100, random_state=0)
    mesh = Mesh(Topology.mesh(2, 6, 2), activation="identity", random_state=0)
    start = mesh.weights.copy()
    rows = train(mesh, X, y, solver=SGD(1e30), batch_size=None, max_epochs=50)
    notes = []
    with pytest.raises(MeshError, match=r"again after each of 5 retries .* Lower learning_rate"):
        notes.extend(rows)
    halved = [row for row in notes if "rate halved" in row.note]
    assert len(halved) == 5
    assert "back to epoch 0, rate halved to 5e+29" in halved[0].note
    assert np.isnan(halved[0].loss)
    np.testing.assert_array_equal(mesh.weights, start)
    # a divergence that half the learning rate avoids
    mesh = Mesh(Topology.layered([1, 1], bias=False), activation="identity", weights=[1.0], dtype="float64")
    x = np.array([[-1.0], [1.0]])  # (w - 3)^2 / 2: a step of rate r makes w - 3 (1 - r) times as large
    found = list(train(mesh, x, 3 * x, "squared_error", max_epochs=500, tol=0, l2=0.0,
                       solver=SGD(3.0, "constant", momentum=0.0, nesterov=False)))  # fmt: skip
    assert [row.note.split("rate ")[1] for row in found if row.note] == ["halved to 1.5"]
    assert found[-1].epoch == 500
    np.testing.assert_allclose(mesh.weights, [3.0], atol=1e-6)


@pytest.mark.parametrize("solver", [SGD(0.1, "constant", momentum=0.9, nesterov=False), Adam(0.1, "constant")])
def test_after_divergence_the_first_step_has_no_moments(solver):
    """(w - 3)^2 / 2 from w = 0: some steps that build up moments, one that diverges, one with the old learning rate."""
    mesh = Mesh(Topology.layered([1, 1], bias=False), activation="identity", weights=[0.0], dtype="float64")
    x = np.array([[-1.0], [1.0]])
    samples, settings = as_samples(mesh, x, 3 * x, "squared_error"), Settings(solver=solver, l2=0.0, max_epochs=50)
    run = solver.start(mesh, samples, settings, np.random.default_rng(0))
    for _ in range(4):
        assert not run.advance(1).note
    safe = mesh.weights[0]
    run.set_rate(1e9)
    assert "rate halved to 5e+08" in run.advance(1).note
    assert mesh.weights[0] == safe
    run.set_rate(0.1)
    run.advance(1)
    gradient = safe - 3.0
    want = 0.1 * np.sign(gradient) if isinstance(solver, Adam) else 0.1 * gradient
    assert safe - mesh.weights[0] == pytest.approx(want, rel=1e-6)


def test_wrong_settings_are_refused_before_the_first_row():
    mesh = Mesh(Topology.mesh(1, 1, 2))
    for kind, options, message in [
        (Adam, {"learning_rate": "x"}, "learning_rate .*'x'"),
        (Adam, {"betas": (0.9,)}, r"betas .*\(0.9,\)"),
        (Adam, {"betas": (0.9, 1.0)}, r"betas\[1\] .* 1.0"),
        (Adam, {"epsilon": float("nan")}, "epsilon .*nan"),
        (Adam, {"schedule": "cosin"}, "did you mean 'cosine'"),
        (SGD, {"momentum": 1.0}, "momentum .*1.0"),
        (SGD, {"nesterov": 1}, "nesterov .*1"),
        (EarlyStopping, {"patience": True}, "patience .*True"),
    ]:
        with pytest.raises(MeshError, match=message):
            kind(**options)
        with pytest.raises(MeshError, match=message):
            kind().set_params(**options)
    for options, message in [
        ({"max_epochs": 0}, "max_epochs .*0"),
        ({"solver": "adamm"}, "'adamm'; did you mean 'adam'"),
        ({"solver": [LM(), "adam"]}, "'adam'"),
        ({"batch_size": 0}, "batch_size .*0"),
        ({"batch_size": "all"}, "batch_size .*'all'"),
        ({"gradient": "tensor"}, "'tensor'"),
        ({"solver": LM(), "l1": 0.1}, "l1"),
        ({"solver": [LM(), Adam()], "l2": "evidence"}, "evidence"),
        ({"epochs": 3}, "'epochs'"),
    ]:
        with pytest.raises(MeshError, match=message):
            train(mesh, [[1.0]], [0], **options)
    with pytest.raises(MeshError, match="train takes a Mesh"):
        train(Topology.mesh(1, 1, 1), [[1.0]], [0])
    with pytest.raises(MeshError, match="X holds nan at sample 1, feature 0"):
        next(train(mesh, [[1.0], [np.nan]] * 3, [0, 1] * 3, solver="adam", batch_size=2))


@pytest.mark.parametrize("options", [Adam(), SGD(), LM(), EarlyStopping()], ids=str)
def test_options_are_parameters_as_in_scikit_learn(options):
    from sklearn.base import clone

    params = options.get_params()
    again = type(options)(**params)
    assert again == options == clone(options)
    assert again is not clone(options)
    assert all(again.get_params()[name] is value for name, value in params.items())
    with pytest.raises(MeshError, match="'rate'"):
        again.set_params(rate=1)


def test_a_graph_changed_during_training_is_noticed():
    X, y = spirals(100, random_state=0)
    for change in (lambda m: m.rewire(Topology.mesh(2, 6, 2, self_loops=True)), lambda m: setattr(m, "ticks", 4)):
        mesh = Mesh(Topology.mesh(2, 6, 2), activation="tanh", random_state=0)
        rows = train(mesh, X, y, max_epochs=200)
        next(rows)
        change(mesh)
        with pytest.raises(MeshError, match="the graph or the ticks of the mesh were changed"):
            next(rows)


@pytest.mark.parametrize("options", [
    {"solver": "adam", "batch_size": 16, "n_restarts": 2},
    {"solver": "adam", "batch_size": None, "max_epochs": 300},
    {"solver": "adam", "batch_size": 16, "tol": 0.5, "patience": 3, "max_epochs": 30, "n_restarts": 2},
    {"solver": "sgd", "batch_size": 50, "validate": True},
    {"solver": "lm", "n_restarts": 3, "max_epochs": 8},
    {"solver": "lm", "validate": True, "max_epochs": 12},
    {"solver": "adam", "structure": structure.Prune(to=30)},
    {"solver": "lm", "structure": structure.Prune(to=21, start="given"), "tied": True},
    {"solver": "adam", "structure": [structure.Prune(to=35, end=0.5), structure.Regrow(every=2)]},
    {"solver": "lm", "structure": structure.Grow(to=9, wait=2, slow=0.5)},
    {"solver": "adam", "structure": structure.Sparsify(l1=0.02)},
], ids=str)  # fmt: skip
def test_a_trainer_goes_on_from_any_row_bit_by_bit(options, monkeypatch):
    X, y = spirals(160, random_state=0)
    X /= 10
    options = {"max_epochs": 10, "tol": 0} | options
    validate, policy, tied = (options.pop(name, None) for name in ("validate", "structure", "tied"))

    def fresh():
        graph = Topology.mesh(2, 6, 2)
        ties = np.arange(graph.n_edges) // 3 if tied else None
        mesh = Mesh(graph, 3, "tanh", dtype="float64", random_state=0, tied=ties)
        held_out = as_samples(mesh, X[120:], y[120:], "cross_entropy") if validate else None
        samples = as_samples(mesh, X[:120], y[:120], "cross_entropy")
        return Trainer(mesh, samples, Settings(**options), held_out, 5, policy)

    whole = fresh()
    states = [whole.state()] + [whole.state() for _ in whole.rows()]
    assert len(states) > 8
    for k in range(0, len(states), max(1, len(states) // 12)):
        again = fresh()
        again.restore(states[k])
        with monkeypatch.context() as patch:
            if k:  # the result of the search is in the state
                patch.setattr("meshnn.training.trainer.search", None)
            assert len(list(again.rows())) == len(states) - 1 - k
        np.testing.assert_array_equal(again.mesh.values, whole.mesh.values)
        assert again.mesh.topology == whole.mesh.topology
        assert again.history == whole.history
        assert (again.best.restart, again.choice) == (whole.best.restart, whole.choice)
        np.testing.assert_array_equal(again.best.penalties, whole.best.penalties)
        if policy is not None:
            steps = zip(again.mesh.lineage_.steps, whole.mesh.lineage_.steps, strict=True)
            assert all(repr(a) == repr(b) for a, b in steps)


def test_history_is_a_table():
    X, y = spirals(100, random_state=0)
    mesh = Mesh(Topology.mesh(2, 6, 2), activation="tanh", random_state=0)
    history = History(train(mesh, X, y, solver="adam", max_epochs=30, tol=0, l2=0.0))
    assert history["epoch"].tolist() == list(range(1, 31))
    assert (len(history[:5]), history.notes) == (5, [])
    assert list(history.to_dict()) == list(type(history[0])._fields)
    with pytest.raises(MeshError, match="'los'"):
        history["los"]


def test_blocks_of_epochs_can_be_interrupted():
    """A row is a bounded amount of work for any number of epochs."""
    X, y = spirals(200, random_state=0)
    mesh = Mesh(Topology.mesh(2, 4, 2), activation="tanh", random_state=0)
    options = {"solver": "adam", "batch_size": None, "tol": 0.0}
    row = next(iter(train(mesh, X, y, max_epochs=10**8, **options)))
    assert 100 < row.epoch < 20_000
    assert next(iter(train(mesh, X, y, max_epochs=1000, **options))).epoch == 10


@pytest.mark.parametrize("solver", ["adam", "lm"])
def test_callbacks_receive_the_weights_of_the_row(solver):
    """This includes the last row of a restart, before the next one begins."""
    X, y = spirals(100, random_state=0)
    mesh = Mesh(Topology.mesh(2, 4, 2), activation="tanh", dtype="float64", random_state=0)
    options = {"solver": solver, "n_restarts": 3, "max_epochs": 4, "batch_size": None, "tol": 0.0, "l2": 0.0}
    for row in train(mesh, X, y, random_state=0, **options):
        if row.restart < 2:
            np.testing.assert_allclose(mesh.gradient(X, y)[0], row.loss, rtol=1e-9)


@pytest.mark.parametrize("settings", [{"solver": "lm"}, {"solver": "adam", "batch_size": 7}])
def test_accuracies_are_exact_fractions(settings):
    """Sums of weights of 1/n would have rounding errors."""
    from meshnn import MeshClassifier

    X = np.linspace(-1, 1, 149)[:, None]
    model = MeshClassifier(1, max_epochs=30, tol=0, random_state=0, **settings).fit(X, X[:, 0] > 0)
    for accuracy in model.history_["accuracy"]:
        assert accuracy == round(accuracy * 149) / 149
    weight = np.linspace(1, 2, 149, dtype=np.float32)
    assert model.fit(X, X[:, 0] > 0, sample_weight=weight).history_["accuracy"].max() <= 1
