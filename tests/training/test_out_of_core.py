"""Out-of-core fits: files, folders, blocks."""

import subprocess
import sys
from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import clone

import meshnn
from meshnn import Mesh, MeshClassifier, MeshError, MeshRegressor, MeshSequenceRegressor, Topology
from meshnn.codes import StepRule
from meshnn.engine import Optimizer, Steps
from meshnn.errors import DataError
from meshnn.tables.sources import BlockSource, NpySource, RowBlock, is_out_of_core
from meshnn.training import SGD, EarlyStopping, TimeLimit, search
from meshnn.training.dataset import LIMITS
from meshnn.training.out_of_core import RowStore, WindowSteps, read_ahead
from meshnn.training.samples import Epoch, RowTransform
from row_sources import FEW, blocks, data, folder_of, frame, same, scratch

pytestmark = pytest.mark.usefixtures("scratch")
__all__ = ["scratch"]
PAGE = LIMITS.page_rows


def test_any_source_of_the_same_rows_gives_the_same_bits(tmp_path):
    X, y = data(5000)
    table = frame(X, y=y)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    np.save(tmp_path / "fortran.npy", np.asfortranarray(X))
    with (tmp_path / "raw").open("wb") as file:
        file.write(b"12345678" + X.tobytes())
    mapped = np.memmap(tmp_path / "raw", np.float32, "r", offset=8, shape=X.shape)
    first = MeshRegressor(**FEW).fit(folder_of(tmp_path / "1", table), "y")
    given = [
        (folder_of(tmp_path / "2", table, 1, 100), "y"),
        (str(folder_of(tmp_path / "3", table, 7, 3000)), ["y"]),
        (sorted(folder_of(tmp_path / "4", table, 1, 3000).iterdir())[0], "y"),
        (tmp_path / "X.npy", tmp_path / "y.npy"),
        (str(tmp_path / "X.npy"), y.tolist()),
        (tmp_path / "fortran.npy", y),
        (NpySource(mapped, y), None),
        (blocks(777, X, y), None),
        ((table[k : k + 777] for k in range(0, 5000, 777)), "y"),
        (iter(pa.Table.from_pandas(table).to_batches(1234)), "y"),
    ]
    for rows, target in given:
        assert is_out_of_core(rows)
        same(MeshRegressor(**FEW).fit(rows, target), first)
    with pytest.raises(AssertionError):
        same(MeshRegressor(**FEW | {"random_state": 1}).fit(blocks(777, X, y)), first)


def test_labels_that_turn_up_late_and_weights_give_the_same_bits_and_the_same_stamp(tmp_path):
    X, y = data(3000)
    weight = np.random.default_rng(1).uniform(0, 1, 3000)
    labels = np.where(np.arange(3000) < 2500, np.where(y > 0, "m", "z"), "a")
    options = {"class_weight": "balanced"} | FEW
    first = MeshClassifier(**options).fit(blocks(3000, X, labels, weight))
    assert first.classes_.tolist() == ["a", "m", "z"]
    table = frame(X, label=labels, w=weight)
    path = folder_of(tmp_path / "f", table, 3, 100)
    same(MeshClassifier(**options).fit(path, "label", "w"), first)
    same(MeshClassifier(**options).fit(blocks(100, X, labels, weight)), first)
    np.testing.assert_array_equal(first.predict(table[["a", "b", "c"]].to_numpy()).shape, (3000,))
    rows = [RowStore(BlockSource(blocks(size, X, labels, weight)), True) for size in (3000, 100, 1)]
    assert len({(each.fingerprint, tuple(each.labels)) for each in rows}) == 1
    for each in rows:
        np.testing.assert_array_equal(each.label_sums, rows[0].label_sums)
        found = [weight[labels == label].sum() for label in each.labels]
        np.testing.assert_allclose(each.label_sums, found)
        each.release()


@pytest.mark.parametrize("count", [1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 5 * PAGE + 3])
def test_an_epoch_visits_every_row_once_in_an_order_that_the_seed_gives(count, monkeypatch):
    seen, real = [], Steps.epochs

    def watched(self, values, optimizer, order, rates):
        rows = self.targets.values[:, 0]
        seen.append(rows[order[0]] if order.shape[1] else rows.copy())
        return real(self, values, optimizer, order, rates)

    monkeypatch.setattr(Steps, "epochs", watched)
    rows = RowStore(BlockSource(blocks(100, np.ones((count, 1)), np.arange(count))), False)
    preprocessing = RowTransform("squared_error", "float64", *np.array([[0.0], [1], [0], [1]]))
    mesh = Mesh(Topology.layered([1, 1]), dtype="float64", random_state=0)
    steps = rows.prepared(preprocessing).steps(mesh, "auto", 100, 1)
    orders = []
    for seed in (0, 0, 1):
        seen.clear()
        order = steps.order(np.random.default_rng(seed), 1)[0]
        told = []
        given = (mesh.values, optimizer_of(mesh), order, np.zeros(steps.batches), Epoch())
        found = steps.epoch(*given, lambda now, done, told=told: told.append(done))
        assert told == np.cumsum(steps.counts).tolist()
        assert found.piece == len(steps.counts) == len(seen)
        orders.append(np.concatenate(seen))
        np.testing.assert_array_equal(np.sort(orders[-1]), np.arange(count))
    np.testing.assert_array_equal(orders[0], orders[1])
    if count > PAGE:
        assert (orders[0] != orders[2]).any()
    rows.release()


def scaling_of(rows, loss="squared_error", *classes):
    return RowTransform(loss, "float64", rows.moments.mean, rows.moments.spread, np.zeros(1), np.ones(1), *classes)


def optimizer_of(mesh):
    size = mesh.n_parameters
    zeros = [np.zeros(size, mesh.dtype) for _ in range(3)]
    return Optimizer(StepRule.ADAM, (0.9, 0.999), 1e-8, 0.0, 0.0, *zeros)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [64, 1000])
def test_the_steps_of_a_window_are_those_in_memory(weighted, size, monkeypatch):
    monkeypatch.setattr(LIMITS, "window_pages", 4)
    X, y = data(1024, np.float64)
    weight = np.random.default_rng(2).choice([0.5, 1.0, 2.0], 1024)
    weight *= 1024 / weight.sum()
    given = (X, y, weight) if weighted else (X, y)
    rows = RowStore(BlockSource(blocks(300, *given)), False)
    preprocessing = scaling_of(rows)
    samples = rows.prepared(preprocessing)
    near = preprocessing.samples(RowBlock(X, y[:, None], weight if weighted else None), samples.total_weight)
    meshes = [Mesh(Topology.mesh(3, 4, 1), activation="tanh", dtype="float64", random_state=0) for _ in range(2)]
    steps = samples.steps(meshes[0], "auto", size, 1)
    order = steps.order(np.random.default_rng(0), 1)[0]
    rates, optimizers = np.full(steps.batches, 0.01), [optimizer_of(mesh) for mesh in meshes]
    found = steps.epoch(meshes[0].values, optimizers[0], order, rates, Epoch(), lambda *now: None)
    mixed = np.random.default_rng([int(order[0]), 1, 0]).permutation(1024)[None]
    there = near.steps(meshes[1], "auto", size, 1)
    record = there.epochs(meshes[1].values, optimizers[1], mixed, rates)
    close = np.testing.assert_allclose if weighted else np.testing.assert_array_equal  # rounding of weights
    close(meshes[0].values, meshes[1].values)
    close(found.sums, record[-1])
    assert (meshes[0].values != Mesh(meshes[0].topology, dtype="float64", random_state=0).values).any()
    rows.release()


@pytest.mark.parametrize("loss", ["squared_error", "cross_entropy"])
def test_loss_and_curvature_are_those_in_memory(loss):
    X, y = data(1500, np.float64)
    weight = np.random.default_rng(2).uniform(0, 2, 1500)
    classes = loss == "cross_entropy"
    y = np.where(y > 0, 5, 3) if classes else y
    rows = RowStore(BlockSource(blocks(400, X, y, weight)), classes)
    places = np.searchsorted([3, 5], rows.labels) if classes else None
    balance = np.array([2.0, 0.5]) if classes else None
    preprocessing = scaling_of(rows, loss, places, balance)
    samples = rows.prepared(preprocessing)
    total = weight * np.where(y > 3, 0.5, 2.0) if classes else weight
    mesh = Mesh(Topology.mesh(3, 4, 2 if classes else 1), activation="tanh", dtype="float64", random_state=0)
    scaled = (X - rows.moments.mean) / rows.moments.spread
    target = (y > 3).astype(int) if classes else y[:, None]
    codes = np.array([rows.labels.index(v) for v in y])[:, None] if classes else y[:, None]
    near = preprocessing.samples(RowBlock(X, codes, weight), samples.total_weight)
    expected = mesh.gradient(scaled, target, loss, sample_weight=total)[0]
    live = mesh.live_parameters()
    found = samples.curvature(mesh, "auto", live, 1)
    one = near.curvature(mesh, "auto", live, 1)
    assert samples.total_weight == pytest.approx(total.sum())
    assert samples.evaluate(mesh, 1) == pytest.approx((expected, one.correct))
    assert samples.glance(mesh, 1) == pytest.approx(expected)
    assert (found.loss, found.correct) == pytest.approx((expected, one.correct))
    np.testing.assert_allclose(found.grad, one.grad, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.matrix, one.matrix, rtol=1e-9, atol=1e-12)
    some = np.array([0, 3, 255, 256, 700, 1499])
    np.testing.assert_allclose(samples.take(some).X[0], scaled[some])
    rows.release()


LM = {"hidden": 0, "solver": "lm", "l2": 1e-3, "max_epochs": 60, "tol": 0, "random_state": 0}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (MeshRegressor, {"loss": "huber"}),
        (MeshRegressor, {"loss": "poisson"}),
        (MeshRegressor, {"several": True}),
        (MeshClassifier, {"class_weight": {0: 1.0, 1: 3.0, 2: 0.5}}),
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_lm_ends_where_it_ends_in_memory_if_there_is_one_place_to_end(kind, options, weighted):
    X, y = data(1300, np.float64)
    options = dict(options)
    if options.pop("several", False):
        y = np.stack([y, X[:, 0] - y], axis=1)
    if options.get("loss") == "poisson":
        y = np.random.default_rng(3).poisson(np.exp(0.3 * np.clip(y, -3, 3)))
    if kind is MeshClassifier:
        y = np.digitize(y, [-2, 0.5])
        options["l2"] = 0.0  # class weights do not affect the scaling of features, so equal penalties would differ
    weight = np.random.default_rng(2).uniform(0.1, 2, 1300) if weighted else None
    given = (X, y, weight) if weighted else (X, y)
    far = kind(**LM | options).fit(blocks(300, *given))
    near = kind(**LM | options).fit(X, y, weight)
    judged = [each.predict_proba(X) if kind is MeshClassifier else each.predict(X) for each in (far, near)]
    np.testing.assert_allclose(judged[0], judged[1], rtol=1e-8, atol=1e-8)
    assert judged[0].shape == judged[1].shape
    assert far.history_[-1].loss == pytest.approx(near.history_[-1].loss, rel=1e-9)
    np.testing.assert_allclose(far.feature_importances_, near.feature_importances_, rtol=1e-5)


def test_penalties_on_a_subset_are_weighted_like_all_rows(monkeypatch):
    """The weights of a subset of the rows are scaled to the sum 1, like those of all rows."""
    monkeypatch.setattr(search.LIMITS, "rows", 500)
    X, y = data(3000, np.float64)
    rows = RowStore(BlockSource(blocks(300, X, y)), False)
    preprocessing = scaling_of(rows)
    loaded = search._loaded(rows.prepared(preprocessing), 0)
    assert (loaded.count, loaded.total_weight) == (500, 500)
    assert loaded.targets.share.sum() == pytest.approx(1.0)
    assert search._subset(loaded, 0).targets.share.sum() == pytest.approx(1.0)
    rows.release()


def test_float32_far_from_0_is_scaled_as_for_predictions():
    """Features far from 0, with tiny and huge spread, and constants."""
    rng = np.random.default_rng(0)
    far_off = 1e7 + rng.integers(-20, 20, 600)
    wide = [rng.standard_normal(600) * spread for spread in (1e-40, 3e37)]
    X, y = np.stack([far_off, *wide, np.full(600, 0.1)], axis=1).astype(np.float32), (far_off - 1e7) / 10
    model = MeshRegressor(**FEW | {"solver": SGD(learning_rate=0.1), "max_epochs": 40}).fit(blocks(100, X, y))
    scaled = model.preprocessing_.scaling.inputs(X.astype(float))
    np.testing.assert_allclose(scaled.std(axis=0), [1, 1, 1, 0], rtol=1e-3)
    assert model.score(X, y) > 0.99


def test_held_out_pages_are_not_learned_from(monkeypatch):
    windows, real = [], WindowSteps.windows

    def watched(self, order):
        windows.append(np.sort(np.concatenate(found := real(self, order))))
        return found

    monkeypatch.setattr(WindowSteps, "windows", watched)
    X, y = data(PAGE * 9 + 5)
    model = MeshRegressor(**FEW | {"early_stopping": EarlyStopping(validation_fraction=0.3)}).fit(blocks(500, X, y))
    assert len(windows) == 3
    assert all(np.array_equal(window, windows[0]) for window in windows)
    held = np.setdiff1d(np.arange(10), windows[0])
    assert len(held) == 3
    numbers = np.flatnonzero(np.isin(np.arange(len(X)) // PAGE, held))
    off = (model.predict(X[numbers]) - y[numbers]) / model.preprocessing_.scaling.y_scale
    assert min(model.validation_scores_) == pytest.approx(0.5 * np.mean(off**2), rel=1e-4)
    with pytest.raises(DataError, match="257"):
        MeshRegressor(early_stopping=True).fit(blocks(500, X[:257], y[:257]))


def test_validation_samples_callbacks_and_seconds(tmp_path):
    X, y = data()
    table, seen = frame(X, y=y), []
    path = folder_of(tmp_path / "f", table, 2)
    model = MeshRegressor(**FEW, callbacks=lambda row, mesh: seen.append(row.epoch))
    model.fit(path, "y", X_val=table[["a", "b", "c"]][:200], y_val=y[:200])
    assert (seen, len(model.validation_scores_)) == ([1, 2, 3], 3)
    for options in ({"X_val": X}, {"X_val": str(path), "y_val": "y"}):
        with pytest.raises(DataError, match="X_val"):
            MeshRegressor(**FEW).fit(path, "y", **options)
    assert MeshRegressor(**FEW, callbacks=TimeLimit(1e-9)).fit(path, "y").n_iter_ == 1


def test_a_reader_makes_one_thing_ahead_and_ends_when_it_is_left():
    made = []
    with closing(read_ahead(range(100), lambda k: made.append(k) or k)) as ahead:
        assert [next(ahead), next(ahead)] == [0, 1]
    assert len(made) == 3
    assert list(read_ahead([], lambda k: k)) == []
    with pytest.raises(ZeroDivisionError):
        list(read_ahead([1, 0, 2], lambda k: 1 / k))


@pytest.mark.parametrize("left_at", [0, 1, 3])
def test_an_epoch_that_is_left_at_any_window_ends_its_reader(left_at):
    X, y = data(3000)
    rows = RowStore(BlockSource(blocks(500, X, y)), False)
    mesh = Mesh(Topology.layered([3, 1]), dtype="float64", random_state=0)
    steps = rows.prepared(scaling_of(rows)).steps(mesh, "auto", 64, 1)

    def leave(now, done):
        if now.piece > left_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        steps.epoch(mesh.values, optimizer_of(mesh), np.array([7]), np.zeros(steps.batches), Epoch(), leave)
    rows.release()  # the fixture checks that no thread remains


def test_a_fitted_estimator_is_like_any_other(tmp_path):
    X, y = data(1000)
    labels = np.where(y > 0, "up", "down")
    path = folder_of(tmp_path / "f", frame(X, y=labels))
    model = MeshClassifier(**FEW).fit(path, "y")
    assert model.classes_.tolist() == ["down", "up"]
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    assert model.score(frame(X), labels) > 0.6
    assert model.feature_importances_.sum() == pytest.approx(1.0)
    model.save(tmp_path / "model.mesh")
    other = meshnn.load(tmp_path / "model.mesh")
    np.testing.assert_array_equal(other.predict_proba(frame(X)), model.predict_proba(frame(X)))
    assert other.history_ == model.history_
    again = clone(model).set_params(max_epochs=2).fit(path, "y").fit(X, labels)  # from memory, without names
    assert not hasattr(again, "feature_names_in_")
    for target in (y, y[:, None], np.stack([y, y], axis=1)):
        regressor = MeshRegressor(**FEW).fit(blocks(100, X, target))
        assert regressor.predict(X).shape == target.shape
    with pytest.raises(MeshError, match="standard deviation"):
        regressor.predict(X, return_std=True)
    np.save(tmp_path / "X.npy", X)
    np.testing.assert_array_equal(again.predict_proba(tmp_path / "X.npy"), again.predict_proba(X))


@pytest.mark.parametrize("count", [1, PAGE, PAGE + 1])
def test_few_rows_and_batches_larger_than_all_of_them(count):
    X, y = data(count)
    for size in (1, 10**6, None, "auto"):
        model = MeshRegressor(**FEW | {"batch_size": size}).fit(blocks(100, X, y))
        assert np.isfinite(model.predict(X)).all()
    assert np.isfinite(MeshRegressor(**LM).fit(blocks(100, X, y)).predict(X)).all()


# -- memory ----------------------------------------------------------------------------------------------------------

HUNGRY = """
import sys
import numpy as np
from meshnn import MeshRegressor

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) // 1024

few = np.random.default_rng(0).standard_normal((3000, 20)).astype(np.float32)
options = {"hidden": 4, "solver": "adam", "l2": 0.0, "max_epochs": 1, "random_state": 0}
MeshRegressor(**options).fit(iter([(few, few[:, 0])]))
before = peak()
MeshRegressor(**options).fit(sys.argv[1], sys.argv[2])
print(peak() - before)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path):
    grown = {}
    for count in (1_000_000, 3_000_000):
        X = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", np.float32, (count, 20))
        y = np.lib.format.open_memmap(tmp_path / "y.npy", "w+", np.float64, (count,))
        rng = np.random.default_rng(0)
        for k in range(0, count, 100_000):
            X[k : k + 100_000] = rng.standard_normal((100_000, 20), np.float32)
            y[k : k + 100_000] = X[k : k + 100_000, 0]
        del X, y
        command = [sys.executable, "-c", HUNGRY, str(tmp_path / "X.npy"), str(tmp_path / "y.npy")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stderr
        grown[count] = int(done.stdout)
    assert grown[3_000_000] < 400  # MiB; the rows take 264
    assert grown[3_000_000] < grown[1_000_000] + 100


def test_sequences_are_learned_from_memory(tmp_path):
    X, y = data(60)
    np.save(tmp_path / "X.npy", X)
    for given in (tmp_path / "X.npy", blocks(10, X, y)):
        with pytest.raises(MeshError, match="list of arrays"):
            MeshSequenceRegressor(hidden=1).fit(given, y)
