"""Fits on rows that are not in memory: files, folders, blocks."""

import copy
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

import meshnn
from meshnn import Mesh, MeshClassifier, MeshError, MeshRegressor, MeshSequenceRegressor, Topology
from meshnn.codes import StepRule
from meshnn.engine import Optimizer, Steps
from meshnn.errors import DataError, FileError, TrainingInterrupted
from meshnn.storage import FileError as StorageError
from meshnn.tables.sources import BlockSource, NpySource, ParquetSource, RowBlock, is_out_of_core, open_source
from meshnn.training import SGD, Adam, Checkpoint, EarlyStopping, TimeLimit, search, structure
from meshnn.training.dataset import LIMITS
from meshnn.training.out_of_core import RowFile, RowStore, StoredSamples, WindowSteps, read_ahead
from meshnn.training.row_transform import RowTransform
from meshnn.training.samples import Epoch
from meshnn.training.trainer import Trainer

PAGE = LIMITS.page_rows
FEW = {"hidden": 0, "solver": "adam", "l2": 0.0, "max_epochs": 3, "tol": 0, "random_state": 0}


@pytest.fixture(autouse=True)
def scratch(monkeypatch, tmp_path_factory):
    """Windows of two pages; and nothing is left behind, whatever happened."""
    folder = tmp_path_factory.mktemp("scratch")
    monkeypatch.setenv("MESHNN_SCRATCH", str(folder))
    monkeypatch.setattr(LIMITS, "window_bytes", 1)
    monkeypatch.setattr(LIMITS, "window_pages", 2)
    yield folder
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("meshnn reader")]
    held = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if is_link(fd)]
    assert not [name for name in held if name.startswith(str(folder))]


def is_link(fd):
    return os.path.lexists(f"/proc/self/fd/{fd}")


def data(count=2000, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((count, 3)) * [1, 2, 5] + [0, 3, -1]).astype(dtype)
    y = X.astype(float) @ [1.0, -0.5, 0.2] + 0.3 * rng.standard_normal(count)
    return X, y


def frame(X, **columns):
    return pd.DataFrame(X, columns=["a", "b", "c"]).assign(**columns)


def folder_of(path, table, files=1, group=1_000_000):
    path.mkdir()
    for k, rows in enumerate(np.array_split(np.arange(len(table)), files)):
        part = pa.Table.from_pandas(table.iloc[rows], preserve_index=False)
        pq.write_table(part, path / f"part {k:02d} ä.parquet", row_group_size=group)
    return path


def blocks(size, *arrays):
    return (tuple(array[k : k + size] for array in arrays) for k in range(0, len(arrays[0]), size))


def same(a, b):
    np.testing.assert_array_equal(a.mesh_.weights, b.mesh_.weights)
    assert a.history_ == b.history_
    assert (a.best_restart_, a.n_iter_, a.l2_) == (b.best_restart_, b.n_iter_, b.l2_)


# -- the same bits from anywhere -------------------------------------------------------------------------------------


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


def test_views_of_a_map_are_read_as_they_are(tmp_path):
    X, _ = data(700)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    for view in (mapped[100:600], mapped[5:][7:], mapped[:, 1:], mapped[::3], mapped[::-1], mapped[:1]):
        found = np.concatenate([rows.X for rows in NpySource(view, np.zeros(len(view))).blocks()])
        np.testing.assert_array_equal(found, view)
    private = np.load(tmp_path / "X.npy", mmap_mode="c")
    private[3] = 0.5  # which is not in the file
    found = next(NpySource(private, np.zeros(700)).blocks())
    np.testing.assert_array_equal(found.X, private)


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


def test_neighbours_come_far_apart():
    """Pages are shuffled, and samples in every window in another way."""
    count = 64 * PAGE
    rows = RowStore(BlockSource(blocks(5000, np.ones((count, 1)), np.arange(count))), False)
    preprocessing = RowTransform("squared_error", "float64", *np.array([[0.0], [1], [0], [1]]))
    mesh = Mesh(Topology.layered([1, 1]), dtype="float64", random_state=0)
    steps = rows.prepared(preprocessing).steps(mesh, "auto", 100, 1)
    first, second = (steps.windows(np.array([seed])) for seed in (0, 1))
    assert len(first) == 32
    assert sum(window[1] - window[0] == 1 for window in first) < 8
    assert sum(set(a) == set(b) for a, b in zip(first, second, strict=True)) < 8
    places, real = [], Steps.epochs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Steps, "epochs", lambda self, *given: (places.append(given[2][0]), real(self, *given))[1])
        given = (mesh.values, optimizer_of(mesh), np.array([0]), np.zeros(steps.batches), Epoch())
        steps.epoch(*given, lambda *now: None)
    assert len({place.tobytes() for place in places}) == 32
    rows.release()


@pytest.mark.parametrize("classes", [False, True])
@pytest.mark.parametrize("size", [100, 512, 10**6])
def test_the_loss_of_an_epoch_that_moves_nothing_is_that_of_all_samples(classes, size):
    """Whatever weights there are and however they are spread over windows, the last of which is shorter."""
    X, y = data(1700, np.float64)
    weight = np.linspace(0.0, 40.0, 1700)
    rows = RowStore(BlockSource(blocks(400, X, (y > 0) * 1 if classes else y, weight)), classes)
    more = (np.argsort(rows.labels), np.array([3.0, 1.0])) if classes else ()
    preprocessing = scaling_of(rows, "cross_entropy" if classes else "squared_error", *more)
    mesh = Mesh(Topology.mesh(3, 4, 1 + classes), activation="tanh", dtype="float64", random_state=0)
    samples = rows.prepared(preprocessing)
    steps = samples.steps(mesh, "auto", size, 1)
    rates = np.zeros(steps.batches)
    found = steps.epoch(mesh.values, optimizer_of(mesh), np.array([3]), rates, Epoch(), lambda *now: None)
    assert found.sums[:2] == pytest.approx(samples.evaluate(mesh, 1))
    rows.release()


def scaling_of(rows, loss="squared_error", *classes):
    return RowTransform(loss, "float64", rows.moments.mean, rows.moments.spread, np.zeros(1), np.ones(1), *classes)


def optimizer_of(mesh):
    size = mesh.n_parameters
    zeros = [np.zeros(size, mesh.dtype) for _ in range(3)]
    return Optimizer(StepRule.ADAM, (0.9, 0.999), 1e-8, 0.0, 0.0, *zeros)


# -- the same as in memory -------------------------------------------------------------------------------------------


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
    close = np.testing.assert_allclose if weighted else np.testing.assert_array_equal  # sums of weights are rounded
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
        (MeshRegressor, {}),
        (MeshRegressor, {"loss": "huber"}),
        (MeshRegressor, {"loss": "poisson"}),
        (MeshRegressor, {"several": True}),
        (MeshClassifier, {"class_weight": "balanced"}),
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
        options["l2"] = 0.0  # features are scaled without the weights of classes, so that a penalty would mean another
    weight = np.random.default_rng(2).uniform(0.1, 2, 1300) if weighted else None
    given = (X, y, weight) if weighted else (X, y)
    far = kind(**LM | options).fit(blocks(300, *given))
    near = kind(**LM | options).fit(X, y, weight)
    judged = [each.predict_proba(X) if kind is MeshClassifier else each.predict(X) for each in (far, near)]
    np.testing.assert_allclose(judged[0], judged[1], rtol=1e-8, atol=1e-8)
    assert judged[0].shape == judged[1].shape
    assert far.history_[-1].loss == pytest.approx(near.history_[-1].loss, rel=1e-9)
    np.testing.assert_allclose(far.feature_importances_, near.feature_importances_, rtol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"solver": "adam"},
        {"solver": SGD(learning_rate=0.1)},
        {"solver": "adam", "l1": 0.01, "l2": 0.001},
        {"solver": "adam", "structure": structure.Prune(to=2, end=0.5)},
    ],
)
def test_steps_on_all_rows_at_once_lead_where_they_lead_in_memory(options, monkeypatch):
    """No order of samples there, so that rounding is all that differs; without hidden neurons it stays small."""
    monkeypatch.setattr(LIMITS, "window_pages", 100)
    X, y = data(1100, np.float64)
    options = FEW | options | {"batch_size": None, "max_epochs": 12}
    far, near = MeshRegressor(**options).fit(blocks(300, X, y)), MeshRegressor(**options).fit(X, y)
    np.testing.assert_allclose(far.mesh_.weights, near.mesh_.weights, rtol=1e-4, atol=1e-4)
    assert far.mesh_.topology.n_edges == near.mesh_.topology.n_edges
    # of the same number of epochs, which in memory may share a row
    assert far.history_[-1].epoch == near.history_[-1].epoch == 12
    assert far.history_[-1].loss == pytest.approx(near.history_[-1].loss, rel=1e-4)


def test_the_best_of_two_starts_is_kept():
    X, y = data(1100)
    options = FEW | {"batch_size": 200, "solver": Adam(learning_rate=0.003)}
    two = MeshRegressor(**options, n_restarts=2).fit(blocks(300, X, y))
    one = MeshRegressor(**options).fit(blocks(300, X, y))
    losses = [[row.loss for row in two.history_ if row.restart == k] for k in (0, 1)]
    assert losses[0] == one.loss_curve_
    assert losses[0] != losses[1]
    assert two.best_restart_ == int(min(losses[1]) < min(losses[0]))


def test_penalties_are_tried_on_some_rows_as_if_they_were_all(monkeypatch):
    """Their shares are those among them: of a part that counted little the weakest penalty would be too strong."""
    monkeypatch.setattr(search, "ROWS", 500)
    X, y = data(3000, np.float64)
    rows = RowStore(BlockSource(blocks(300, X, y)), False)
    preprocessing = scaling_of(rows)
    near = search._in_memory(rows.prepared(preprocessing), 0)
    assert (near.count, near.total_weight) == (500, 500)
    assert near.targets.share.sum() == pytest.approx(1.0)
    assert search._some(near, 0).targets.share.sum() == pytest.approx(1.0)
    rows.release()


def test_numbers_that_float32_cannot_scale():
    """float32 far from 0, of tiny and of huge spread, and constants: the net sees what predictions see."""
    rng = np.random.default_rng(0)
    far_off = 1e7 + rng.integers(-20, 20, 600)
    X = np.stack(
        [far_off, rng.standard_normal(600) * 1e-40, rng.standard_normal(600) * 3e37, np.full(600, 0.1)], axis=1
    )
    X = X.astype(np.float32)
    y = (far_off - 1e7) / 10
    model = MeshRegressor(**FEW | {"solver": SGD(learning_rate=0.1), "max_epochs": 40})
    seen, real = [], RowTransform.inputs

    def watched(self, X, out=None):
        seen.append(self)
        return real(self, X, out)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RowTransform, "inputs", watched)
        alone = clone(model).fit(blocks(100, X[:, :1], y))
        first = seen[0].inputs(X[:, :1])
        assert first.dtype == np.float32
        np.testing.assert_allclose(
            first, alone.preprocessing_.scaling.inputs(X[:, :1].astype(float)), rtol=1e-5, atol=1e-5
        )
        seen.clear()
        model.fit(blocks(100, X, y))
    preprocessing = seen[0]
    want = model.preprocessing_.scaling.inputs(X.astype(float))
    np.testing.assert_allclose(preprocessing.inputs(X), want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(preprocessing.inputs(X).mean(axis=0)[1:], 0, atol=1e-3)
    np.testing.assert_allclose(preprocessing.inputs(X).std(axis=0), [1, 1, 1, 0], rtol=1e-3)
    assert model.score(X, y) > 0.99


def test_a_large_mean_and_large_whole_numbers_lose_nothing(tmp_path):
    rng = np.random.default_rng(0)
    sign = rng.choice([-1, 1], 1000)
    table = pd.DataFrame({"time": 1.7e9 + sign, "id": 2**40 + sign, "flag": sign > 0, "y": sign * 2.0 + 1})
    model = MeshRegressor(**FEW | {"solver": "lm"}).fit(folder_of(tmp_path / "f", table), "y")
    np.testing.assert_allclose(model.predict(table[["time", "id", "flag"]]), table["y"], atol=1e-3)


# -- held out --------------------------------------------------------------------------------------------------------


def test_held_out_pages_are_not_learned_from(monkeypatch):
    parts, windows = [], []
    hold_out, real = RowStore.hold_out, WindowSteps.windows

    def watched(self, order):
        windows.append(np.concatenate(found := real(self, order)))
        return found

    monkeypatch.setattr(RowStore, "hold_out", lambda self, *given: (parts.append(hold_out(self, *given)), parts[0])[1])
    monkeypatch.setattr(WindowSteps, "windows", watched)
    X, y = data(PAGE * 9 + 5)
    model = MeshRegressor(**FEW | {"early_stopping": EarlyStopping(validation_fraction=0.3)}).fit(blocks(500, X, y))
    training, validation = parts[0]
    held = np.setdiff1d(np.arange(10), training.pages)
    assert (len(held), training.n_rows + validation.n_rows) == (3, len(X))
    assert len(windows) == 3
    for window in windows:
        np.testing.assert_array_equal(np.sort(window), training.pages)
    numbers = np.concatenate([np.arange(page * PAGE, min((page + 1) * PAGE, len(X))) for page in held])
    np.testing.assert_array_equal(validation.rows.y[:, 0], y[numbers])
    off = (model.predict(X[numbers]) - y[numbers]) / model.preprocessing_.scaling.y_scale
    assert min(model.validation_scores_) == pytest.approx(0.5 * np.mean(off**2), rel=1e-4)
    with pytest.raises(DataError, match="257"):
        MeshRegressor(early_stopping=True).fit(blocks(500, X[:257], y[:257]))


def test_validation_samples_callbacks_seconds_and_words(tmp_path, capsys, monkeypatch):
    X, y = data()
    table, seen = frame(X, y=y), []
    path = folder_of(tmp_path / "f", table, 2)
    model = MeshRegressor(**FEW, callbacks=lambda row, mesh: seen.append(row.epoch), verbose=1)
    model.fit(path, "y", X_val=table[["a", "b", "c"]][:200], y_val=y[:200])
    assert seen == [1, 2, 3]
    assert len(model.validation_scores_) == 3
    capsys.readouterr()
    with pytest.raises(DataError, match="X_val and y_val go together"):
        MeshRegressor(**FEW).fit(path, "y", X_val=X)
    with pytest.raises(DataError, match="X_val is str"):
        MeshRegressor(**FEW).fit(path, "y", X_val=str(path), y_val="y")
    stopped = MeshRegressor(**FEW, callbacks=lambda row, mesh: row.epoch == 2).fit(path, "y")
    assert stopped.n_iter_ == 2
    assert "stopped by a callback" in stopped.history_[-1].note
    late = MeshRegressor(**FEW, callbacks=TimeLimit(1e-9)).fit(path, "y")
    assert late.n_iter_ == 1
    assert "seconds are used up" in late.history_[-1].note


# -- stopping and going on -------------------------------------------------------------------------------------------

RUNS = {
    "adam": FEW | {"hidden": 3, "batch_size": 64},
    "search": FEW | {"l2": "auto", "batch_size": 100},
    "restarts": FEW | {"n_restarts": 2, "max_epochs": 2, "early_stopping": True, "batch_size": 100},
    "landing": FEW | {"max_epochs": 30, "tol": 1e9, "early_stopping": EarlyStopping(None, 2), "batch_size": 500},
    "lm": LM | {"hidden": 2, "max_epochs": 4},
}


class Stop:
    """Raises at the n-th call of a method."""

    def __init__(self, patch, owner, name, at):
        self.calls, self.at, real = 0, at, getattr(owner, name)

        def method(this, *given, **options):
            if owner is not RowFile or threading.current_thread().name.startswith("meshnn reader"):
                self.calls += 1
            if self.calls == self.at:
                raise KeyboardInterrupt
            return real(this, *given, **options)

        patch.setattr(owner, name, method)


def interrupted(options, given, path, owner, name, at):
    """A run that is interrupted, once, and goes on."""
    with pytest.MonkeyPatch.context() as patch:
        stop = Stop(patch, owner, name, at)
        model = MeshRegressor(**options, callbacks=Checkpoint(path, every=0))
        with pytest.raises(TrainingInterrupted):
            model.fit(blocks(500, *given))
        assert stop.calls >= at
    assert model.predict(given[0]).shape == (len(given[0]),)  # it is fitted
    assert meshnn.load(path).predict(given[0][:1]).shape == (1,)
    return MeshRegressor(**options, callbacks=Checkpoint(path)).fit(blocks(333, *given))


@pytest.mark.parametrize(
    ("run", "owner", "name", "times"),
    [
        ("adam", Steps, "epochs", (2, 6)),
        ("adam", Trainer, "_pulse", (1, 4, 8)),
        ("adam", RowFile, "read", (4,)),  # by the reader
        ("search", Trainer, "_pulse", (2, 7)),
        ("restarts", Trainer, "_pulse", (2, 9)),
        ("landing", Trainer, "_pulse", (14, 17)),
        ("lm", StoredSamples, "curvature", (3,)),
    ],
)
def test_interrupted_in_the_middle_of_an_epoch_and_resumed_it_ends_with_the_same_bits(
    run, owner, name, times, tmp_path
):
    X, y = data(1700)
    whole = MeshRegressor(**RUNS[run]).fit(blocks(500, X, y))
    if run == "landing":
        assert "brought down" in "".join(row.note for row in whole.history_)
    for at in times:
        same(interrupted(RUNS[run], (X, y), tmp_path / f"{at}.mesh", owner, name, at), whole)


def test_it_goes_on_after_the_last_window_that_was_saved(tmp_path):
    X, y = data(1700)
    options, path = RUNS["adam"], tmp_path / "run.mesh"
    with pytest.MonkeyPatch.context() as patch:
        Stop(patch, Trainer, "_pulse", 7)
        with pytest.raises(TrainingInterrupted, match=r"interrupted after epoch 1"):
            MeshRegressor(**options, callbacks=Checkpoint(path, every=0)).fit(blocks(500, X, y))
    calls, real = [], Steps.epochs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Steps, "epochs", lambda self, *given: (calls.append(self.n), real(self, *given))[1])
        MeshRegressor(**options, callbacks=Checkpoint(path)).fit(blocks(500, X, y))
    assert calls == [512, 164, 512, 512, 512, 164]  # two of four windows of the second epoch were done
    with pytest.raises(StorageError, match="data"):
        MeshRegressor(**options, callbacks=Checkpoint(path)).fit(blocks(500, X, y + 1))
    with pytest.raises(StorageError, match=r"another .*data"):
        MeshRegressor(**options, callbacks=Checkpoint(path)).fit(X, y)


def test_a_rate_that_is_too_high_is_halved_in_the_middle_of_an_epoch():
    X, y = data(1700)
    seen = []
    options = FEW | {"batch_size": 8, "callbacks": lambda row, mesh: seen.append((row.note, mesh.weights.copy()))}

    def steps(rate):
        return {"solver": SGD(rate, "constant", momentum=0.0)}

    first = MeshRegressor(**options | steps(1e-9) | {"max_epochs": 1}).fit(blocks(500, X, y))
    seen.clear()
    with pytest.raises(MeshError, match="5 retries"):
        MeshRegressor(**options | steps(1e6)).fit(blocks(500, X, y))
    assert len(seen) == 5
    for note, weights in seen:
        assert "back to epoch 0, rate halved to" in note
        np.testing.assert_allclose(weights, first.mesh_.weights, atol=1e-5)
    seen.clear()
    model = MeshRegressor(**options | steps(16.0) | {"batch_size": None}).fit(blocks(500, X, y))
    near = MeshRegressor(**options | steps(16.0) | {"batch_size": 512}).fit(X, y)
    assert [row.note for row in model.history_ if row.note]
    assert [row.note.split(":")[1] for row in model.history_ if row.note][:1] == [
        row.note.split(":")[1] for row in near.history_ if row.note
    ][:1]
    assert np.isfinite(model.mesh_.weights).all()


PROGRAM = """
import sys
import numpy as np
from meshnn import MeshRegressor
from meshnn.training import Checkpoint
from meshnn.training.dataset import LIMITS
from meshnn.training.trainer import Trainer

LIMITS.window_bytes, LIMITS.window_pages = 1, 2
options, X, y, checkpoint, out, wait_at = eval(sys.argv[1]), *sys.argv[2:6], eval(sys.argv[6])
calls, real = [0], Trainer._pulse

def pulse(self, done):
    real(self, done)
    calls[0] += 1
    if calls[0] == wait_at:
        print("here", flush=True)
        sys.stdin.readline()  # until it is killed

def seen(row, mesh):
    if wait_at == -row.epoch:
        print("here", flush=True)
        sys.stdin.readline()

Trainer._pulse = pulse
MeshRegressor(**options, callbacks=[Checkpoint(checkpoint, every=0), seen]).fit(X, y).save(out)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("run", "wait_at"), [("adam", 6), ("search", 1), ("restarts", 9), ("lm", -3)])
def test_killed_in_the_middle_of_an_epoch_and_resumed_it_ends_with_the_same_bits(run, wait_at, tmp_path, scratch):
    X, y = data(1700)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    whole = MeshRegressor(**RUNS[run]).fit(blocks(500, X, y))
    files = [str(tmp_path / name) for name in ("X.npy", "y.npy", "run.mesh", "end.mesh")]
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", PROGRAM, repr(RUNS[run]), *files]
    with subprocess.Popen([*command, str(wait_at)], stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout.readline() == "here\n", process.communicate()
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=600)
    assert process.returncode == -signal.SIGKILL
    assert not list(scratch.iterdir())  # the room on the disk is free again
    assert not Path(files[3]).exists()
    done = subprocess.run([*command, "None"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    same(meshnn.load(files[3]), whole)


# -- what is wrong with the rows -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"b": np.nan}, {}, r"third.parquet: row 18: column b is missing"),
        ({"b": np.inf}, {}, r"third.parquet: row 18: column b is inf"),
        ({"y": np.nan}, {}, r"third.parquet: row 18: column y is missing"),
        ({"w": -2.0}, {"sample_weight": "w"}, r"third.parquet: row 18 .*-2"),
        ({"w": np.nan}, {"sample_weight": "w"}, r"third.parquet: row 18 .*nan"),
    ],
)
def test_a_wrong_number_is_told_with_its_file_and_row(change, options, message, tmp_path):
    X, y = data(300, np.float64)
    table = frame(X, y=y, w=1.0)
    for name in ("first", "second", "third"):
        wrong = table.copy()
        if name == "third":
            for column, value in change.items():
                wrong.loc[17, column] = value
        wrong.to_parquet(tmp_path / f"{name}.parquet", row_group_size=10)
    (tmp_path / "_log").mkdir()
    (tmp_path / "_log" / "x.parquet").write_bytes(b"no part of the table")
    with pytest.raises(DataError, match=message):
        MeshRegressor(**FEW).fit(tmp_path, "y", **options)


def parts(folder, *tables):
    folder.mkdir()
    for k, table in enumerate(tables):
        table.to_parquet(folder / f"{k}.parquet", index=False)
    return folder


def test_tables_that_do_not_go_together_are_refused(tmp_path):
    X, y = data(100, np.float64)
    good = frame(X, y=y)
    doubled = pa.table([X[:, 0], X[:, 1], y], names=["a", "a", "y"])
    pq.write_table(doubled, tmp_path / "doubled.parquet")
    cases = [
        ([good.assign(t="x")], "y", "column t is string"),
        ([good.assign(t=pd.Timestamp("2020"))], "y", "column t is timestamp"),
        ([good, good.assign(b="x")], "y", "1.parquet: column b is string, but double in .*0.parquet"),
        ([good, good.drop(columns="b")], "y", "1.parquet has no column b, which .*0.parquet has"),
        ([good, good.drop(columns="y")], "y", "1.parquet has no column y, which .*0.parquet has"),
        ([good], "z", "has no column z; it has a, b, c, y"),
        ([good], None, "NoneType"),
        ([good], y, "ndarray"),
        ([good[:0], good[:0]], "y", "has no rows"),
        ([good[["y"]]], "y", "besides y"),
        ([good.assign(y="x")], "y", "<U1.*MeshClassifier"),
        ([good.assign(y=pd.Timestamp("2020"))], "y", "column y is timestamp"),
        ([], "y", "no .parquet file"),
    ]
    for k, (tables, target, message) in enumerate(cases):
        with pytest.raises(DataError, match=message):
            MeshRegressor(**FEW).fit(parts(tmp_path / str(k), *tables), target)
    with pytest.raises(DataError, match="duplicate field names"):
        MeshRegressor(**FEW).fit(tmp_path / "doubled.parquet", "y")
    with pytest.raises(DataError, match="column t is string"):
        MeshRegressor(**FEW).fit(parts(tmp_path / "w", good.assign(t="x")), "y", "t")
    with pytest.raises(DataError, match="2 names"):
        MeshRegressor(**FEW).fit(tmp_path / "w", "y", ["a", "b"])
    with pytest.raises(DataError, match="column y is missing"):
        MeshClassifier(**FEW).fit(parts(tmp_path / "n", good.assign(y=["u", None] * 50)), "y")
    (tmp_path / "a.csv").write_text("a,y\n1,2\n")
    with pytest.raises(DataError, match=r"a\.csv"):
        MeshRegressor(**FEW).fit(tmp_path / "a.csv", "y")
    with pytest.raises(FileError, match=r"none\.parquet"):
        MeshRegressor(**FEW).fit(tmp_path / "none.parquet", "y")


def test_tables_that_go_together_are_read(tmp_path):
    """Files without rows, folders that are columns, other types of numbers, categories, columns in another order."""
    X, y = data(300, np.float64)
    good = frame(X, y=y)
    expected = MeshRegressor(**FEW).fit(blocks(100, X, y))
    tables = [good[:0], good[:100], good[:0], good[["c", "y", "a", "b"]][100:]]
    same(MeshRegressor(**FEW).fit(parts(tmp_path / "1", *tables), "y"), expected)
    whole = good.round()
    types = [whole[:100].astype("int32"), whole[100:200].astype("float32"), good[200:]]
    mixed = np.where(np.arange(300)[:, None] < 200, whole, good)
    other = MeshRegressor(**FEW).fit(blocks(100, mixed[:, :3], mixed[:, 3]))
    same(MeshRegressor(**FEW).fit(parts(tmp_path / "2", *types), "y"), other)
    for k in (3, 1, 2):
        (tmp_path / "h" / f"kind={k}").mkdir(parents=True)
        good[100 * (k - 1) : 100 * k].to_parquet(tmp_path / "h" / f"kind={k}" / "x.parquet", index=False)
    kinds = np.repeat([1, 2, 3], 100)
    hive = MeshRegressor(**FEW).fit(tmp_path / "h", "y")
    assert hive.feature_names_in_.tolist() == ["a", "b", "c", "kind"]
    same(hive, MeshRegressor(**FEW).fit(blocks(100, np.column_stack([X, kinds]), y)))
    by_kind = MeshClassifier(**FEW).fit(tmp_path / "h", "kind")
    assert by_kind.classes_.tolist() == [1, 2, 3]
    labels = np.array(["u", "v", "w"])[kinds - 1]
    text = [frame(X[kinds == k], y=pd.Categorical(labels[kinds == k])) for k in (1, 2, 3)]
    found = MeshClassifier(**FEW).fit(parts(tmp_path / "3", *text), "y")
    assert found.classes_.tolist() == ["u", "v", "w"]
    same(found, MeshClassifier(**FEW).fit(blocks(50, X, labels)))
    same(found, MeshClassifier(**FEW).fit(blocks(50, X, kinds)))
    two = MeshClassifier(**FEW).fit(blocks(50, X, y > 0))
    assert two.classes_.tolist() == [False, True]
    assert two.predict(X).dtype == bool


def test_a_damaged_file_is_told_with_its_last_good_row(tmp_path):
    X, y = data(1000, np.float64)
    path = folder_of(tmp_path / "f", frame(X, y=y), 2, 100)
    last = sorted(path.iterdir())[1]
    raw = bytearray(last.read_bytes())
    begin = pq.ParquetFile(last).metadata.row_group(3).column(0).data_page_offset
    begin = min(begin, pq.ParquetFile(last).metadata.row_group(3).column(0).dictionary_page_offset or begin)
    raw[begin : begin + 200] = bytes(200)
    last.write_bytes(raw)
    with pytest.raises(DataError, match=r"part 01 ä\.parquet .*row 300"):
        MeshRegressor(**FEW).fit(path, "y")
    last.write_bytes(raw[:-50])
    with pytest.raises(DataError, match=r"part 01 ä\.parquet"):
        MeshRegressor(**FEW).fit(path, "y")


@pytest.mark.parametrize("change", ["was changed", "is gone", "turned up"])
def test_a_folder_that_changes_while_it_is_read_is_refused(change, tmp_path):
    X, y = data(1000)
    path = folder_of(tmp_path / "f", frame(X, y=y), 2)
    first, last = sorted(path.iterdir())
    source = ParquetSource(path, "y")
    rows = source.blocks()
    next(rows)
    next(rows)
    if change == "was changed":
        os.utime(first, ns=(1, 1))
    elif change == "is gone":
        first.unlink()
    else:
        (path / "new.parquet").write_bytes(last.read_bytes())
    with pytest.raises(DataError, match=rf"\.parquet {change}"):
        list(rows)


def test_blocks_that_do_not_go_together_are_refused():
    X, y = data(100, np.float64)
    good = frame(X, y=y, w=1.0)
    text, none = np.array(["u"] * 100), np.array(["u", None] * 50, object)
    single, twice = X.astype(np.float32), pd.concat([good, good[["a"]]], axis=1)
    hurt = X.copy()
    hurt[7, 1] = np.nan
    cases = [
        ([(X, y), (X[:, :2], y)], {}, "block 2 has 2 features.*3"),
        ([(X, y), (X, y, y**2)], {}, "block 2 has 3 features and weights"),
        ([(X, y, -(y**2))], {}, r"block 1: row 1 .*weight -"),
        ([(X, y), (hurt, y)], {}, "block 2: row 8: feature 1 is missing"),
        ([(X, y), (X, hurt[:, 1])], {}, "block 2: row 8: target 0 is missing"),
        ([(X, y[:5])], {}, r"block 1 .*\(100, 3\), \(5,\)"),
        ([(X, 1.0)], {}, r"block 1 .*\(100, 3\), \(\)"),
        ([(X[0], y[:3])], {}, r"block 1 .*\(3,\)"),
        ([(X, y, 1.0)], {}, r"block 1 .*\(100, 3\)"),
        ([(X, np.zeros((100, 2, 2)))], {}, r"block 1 .*\(100, 3\)"),
        ([(X, np.stack([y, y], 1)), (X, y)], {}, "1 columns.*2"),
        ([(X, y), (X, np.stack([y, y], 1))], {}, "2 columns.*1"),
        ([(single, y), (X, y)], {}, "block 2 holds float64"),
        ([(X.astype(str), y)], {}, "block 1: X"),
        ([(X[:, :0], y)], {}, "no feature"),
        ([X], {}, "block 1 is ndarray"),
        ([], {}, "no rows"),
        ([(X[:0], y[:0])], {}, "no rows"),
        ([(X, y, 0 * y)], {}, "weight 0"),
        ([(X, text)], {}, "<U1.*MeshClassifier"),
        ([(X, y.astype("M8[s]"))], {}, "datetime64"),
        ([good], {}, "block 1 is a table"),
        ([good], {"y": "z"}, "block 1 has no column z"),
        ([good, good[["b", "a", "c", "y", "w"]]], {"y": "y"}, "block 2 has the columns b, a, c"),
        ([good.assign(w=-1.0)], {"y": "y", "sample_weight": "w"}, "block 1: row 1 .*-1"),
        ([good.assign(w="x")], {"y": "y", "sample_weight": "w"}, "block 1: column w"),
        ([good.assign(a="12")], {"y": "y"}, "block 1: column a .*12"),
        ([good.assign(a=pd.Timestamp("2020"))], {"y": "y"}, "block 1: column a"),
        ([good.assign(a=pd.array([1, None] * 50, "Int64"))], {"y": "y"}, "row 2: column a is missing"),
        ([twice], {"y": "y"}, "block 1 has several columns a"),
        ([good[["y"]]], {"y": "y"}, "besides y"),
    ]
    for given, options, message in cases:
        with pytest.raises(DataError, match=message):
            MeshRegressor(**FEW).fit(iter(given), **options)
    labelled = [
        ([(X, none)], {}, "block 1: row 2: y is missing"),
        ([good.assign(y=none)], {"y": "y"}, "block 1: row 2: column y is missing"),
        ([good.assign(y=pd.array(none, "string"))], {"y": "y"}, "block 1: row 2: column y is missing"),
        ([pa.table({"a": y, "y": none})], {"y": "y"}, "block 1: row 2: column y is missing"),
        ([(X, np.array(["u", 1] * 50, object))], {}, "block 1: y holds text and int"),
        ([(X, text), (X, np.ones(100))], {}, "text in some blocks"),
        ([(X, text)], {}, "one class"),
        ([(X, np.round(y, 1))], {}, r"-?\d+\.\d, .*MeshRegressor"),
        ([(X, np.stack([text, text], 1))], {}, "several columns"),
        (
            [(np.repeat(X, 20, 0), np.arange(2000))],
            {},
            "1,000 .*MeshRegressor",
        ),
    ]
    for given, options, message in labelled:
        with pytest.raises(DataError, match=message):
            MeshClassifier(**FEW).fit(iter(given), **options)
    with pytest.raises(DataError, match=r"poisson.*-"):
        MeshRegressor(**FEW, loss="poisson").fit(blocks(10, X, y))
    used = blocks(10, X, y)
    list(used)
    with pytest.raises(DataError, match="only once"):
        MeshRegressor(**FEW).fit(used)
    with pytest.raises(ZeroDivisionError):  # of whoever makes the blocks
        MeshRegressor(**FEW).fit((X, y / k) if k else (X, 1 / k) for k in (1, 0))


def test_blocks_that_go_together_are_read():
    X, y = data(300)
    first = MeshRegressor(**FEW).fit(iter([(X[:0].astype(float), y[:0]), (X[:100], y[:100]), (X[100:], y[100:], None)]))
    same(first, MeshRegressor(**FEW).fit(iter([[X[:200], y[:200].tolist()], (X[200:].astype(float), y[200:])])))
    same(first, MeshRegressor(**FEW).fit(open_source(blocks(77, X, y), None), None))
    numbered = pd.DataFrame(np.column_stack([X, y]))
    assert MeshRegressor(**FEW).fit(iter([numbered]), "3").feature_names_in_.tolist() == ["0", "1", "2"]


def test_files_of_arrays_that_do_not_go_together_are_refused(tmp_path):
    X, y = data(100)
    path = tmp_path / "X.npy"
    np.save(path, X)
    np.save(tmp_path / "cube.npy", np.zeros((3, 3, 3)))
    np.save(tmp_path / "text.npy", np.array([["a", "b"]]))
    np.save(tmp_path / "none.npy", X[:0])
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "junk.npy").write_bytes(b"what is this")
    (tmp_path / "short.npy").write_bytes(path.read_bytes()[:500])
    hurt, wrong = X.copy(), y.copy()
    hurt[70, 2], wrong[99] = np.inf, np.nan
    np.save(tmp_path / "hurt.npy", hurt)
    cases = [
        ((path,), "X.npy has features only"),
        ((path, y[:5]), "y has 5 rows.*100"),
        ((path, 3.0), r"y has the shape \(\)"),
        ((path, np.zeros((100, 2, 2))), r"y has the shape \(100, 2, 2\)"),
        ((path, wrong), r"X\.npy: row 100: target 0 is missing"),
        ((path, y, y[:7] ** 2), "sample_weight has 7 rows"),
        ((path, y, y), r"X\.npy: row . .*weight -"),
        ((path, y, np.ones((100, 2))), r"sample_weight has the shape \(100, 2\)"),
        ((tmp_path / "hurt.npy", y), r"hurt\.npy: row 71: feature 2 is inf"),
        ((tmp_path / "cube.npy", y), r"cube\.npy holds float64 \(3, 3, 3\)"),
        ((tmp_path / "text.npy", y), r"text\.npy"),
        ((tmp_path / "none.npy", y[:0]), r"none\.npy"),
        ((tmp_path / "empty.npy", y), r"empty\.npy"),
        ((tmp_path / "junk.npy", y), r"junk\.npy"),
        ((tmp_path / "short.npy", y), r"short\.npy"),
    ]
    for given, message in cases:
        with pytest.raises(DataError, match=message):
            MeshRegressor(**FEW).fit(*given)
    with pytest.raises(FileError, match=r"no\.npy"):
        MeshRegressor(**FEW).fit(path, "no.npy")
    source = NpySource(path, y)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(DataError, match=r"X\.npy"):
        list(source.blocks())
    path.unlink()
    with pytest.raises(FileError, match=r"X\.npy"):
        list(source.blocks())


def test_a_fit_that_is_refused_leaves_the_estimator_as_it_was(tmp_path, monkeypatch):
    X, y = data(600)
    model = MeshRegressor(**FEW).fit(frame(X), y)
    before, known = model.predict(frame(X)), sorted(model.__dict__)
    hurt = X.copy()
    hurt[500, 0] = np.nan
    refused = [lambda: model.fit(blocks(100, hurt, y)), lambda: model.fit(tmp_path / "no.npy", y)]

    def full(self, rows):
        raise self._failed(OSError(28, "No space left on device"))

    def on_a_full_disk():
        with monkeypatch.context() as patch:
            patch.setattr(RowFile, "_write", full)
            model.fit(blocks(100, X, y))

    def in_no_folder():
        with monkeypatch.context() as patch:
            patch.setenv("MESHNN_SCRATCH", str(tmp_path / "no"))
            model.fit(blocks(100, X, y))

    def interrupted_while_reading():
        def given():
            yield X, y
            raise KeyboardInterrupt

        model.fit(given())

    for attempt in (*refused, on_a_full_disk, in_no_folder, interrupted_while_reading):
        with pytest.raises((MeshError, KeyboardInterrupt)):
            attempt()
        assert sorted(model.__dict__) == known
        np.testing.assert_array_equal(model.predict(frame(X)), before)
    for options in ({"warm_start": True}, {"early_stopping": EarlyStopping(validation_fraction=None, scoring="r2")}):
        with pytest.raises(MeshError, match="memory"):
            copy.copy(model).set_params(**options).fit(blocks(100, X, y))


# -- who reads ahead -------------------------------------------------------------------------------------------------


def test_what_fails_while_reading_ahead_is_raised_where_it_is_waited_for(monkeypatch):
    X, y = data(1700)
    real, calls = RowFile.read, [0]

    def failing(self, *given):
        if threading.current_thread().name.startswith("meshnn reader"):
            calls[0] += 1
            if calls[0] == 3:
                raise FileError("it broke")
        return real(self, *given)

    monkeypatch.setattr(RowFile, "read", failing)
    with pytest.raises(FileError, match="it broke"):
        MeshRegressor(**FEW).fit(blocks(500, X, y))
    assert calls == [3]


def test_a_reader_makes_one_thing_ahead_and_ends_when_it_is_left():
    made = []
    with closing(read_ahead(range(100), lambda k: made.append(k) or k)) as ahead:
        assert [next(ahead), next(ahead)] == [0, 1]
    assert len(made) == 3
    assert list(read_ahead([], lambda k: k)) == []
    with pytest.raises(ZeroDivisionError):
        list(read_ahead([1, 0, 2], lambda k: 1 / k))


def test_what_is_yielded_is_not_made_again_before_the_next_is_asked_for():
    """Two buffers are enough: while one is trained on, only the next is filled."""
    used, lock = set(), threading.Lock()

    def fill(k):
        with lock:
            assert k % 2 not in used
        time.sleep(0.001)
        return k

    for k in read_ahead(range(50), fill):
        with lock:
            used = {k % 2}
        time.sleep(0.002)


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
    rows.release()  # the fixture finds no thread left


# -- what is left of a fit -------------------------------------------------------------------------------------------


def test_a_fitted_estimator_is_like_any_other(tmp_path):
    X, y = data(1000)
    table, labels = frame(X, y=np.where(y > 0, "up", "down")), np.where(y > 0, "up", "down")
    path = folder_of(tmp_path / "f", table)
    model = MeshClassifier(**FEW)
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    assert model.fit(path, "y") is model
    check_is_fitted(model)
    assert model.classes_.tolist() == ["down", "up"]
    assert model.n_features_in_ == 3
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    assert (len(model.history_), model.n_iter_, len(model.loss_curve_)) == (3, 3, 3)
    assert model.history_[-1].accuracy > 0.6
    assert model.feature_importances_.sum() == pytest.approx(1.0)
    features = table[["a", "b", "c"]]
    found = model.predict(features)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # X has no names
        np.testing.assert_array_equal(model.predict(X), found)
    assert model.score(features, labels) > 0.6
    with pytest.raises(ValueError, match="no column a"):
        model.predict(features.rename(columns={"a": "z"}))
    model.save(tmp_path / "model.mesh")
    for other in (meshnn.load(tmp_path / "model.mesh"), pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(other.predict_proba(features), model.predict_proba(features))
        assert other.history_ == model.history_
    again = clone(model).set_params(max_epochs=2)
    assert not hasattr(again, "mesh_")
    assert again.fit(path, "y").n_iter_ == 2
    again.fit(X, labels)  # and from memory, names forgotten
    assert not hasattr(again, "feature_names_in_")
    again.fit(path, "y").fit(blocks(100, X, y > 0))
    assert again.classes_.tolist() == [False, True]
    assert not hasattr(again, "feature_names_in_")


def test_predictions_have_the_shape_of_the_targets():
    X, y = data(300)
    for target in (y, y[:, None], np.stack([y, y], axis=1)):
        assert MeshRegressor(**FEW).fit(blocks(100, X, target)).predict(X).shape == target.shape


def test_sequences_are_learned_from_memory(tmp_path):
    X, y = data(60)
    np.save(tmp_path / "X.npy", X)
    for given in (tmp_path / "X.npy", blocks(10, X, y)):
        with pytest.raises(MeshError, match="MeshSequenceRegressor"):
            MeshSequenceRegressor(hidden=1).fit(given, y)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert MeshSequenceRegressor(hidden=1, max_epochs=1).fit(mapped[:, :, None], y).n_features_in_ == 1


def test_standard_deviations_are_refused_in_a_sentence():
    X, y = data(600)
    model = MeshRegressor(**FEW).fit(blocks(100, X, y))
    with pytest.raises(MeshError, match="standard deviation"):
        model.predict(X, return_std=True)


@pytest.mark.parametrize("count", [1, 2, PAGE - 1, PAGE, PAGE + 1])
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
    assert grown[3_000_000] < 400  # MiB; the rows are 264
    assert grown[3_000_000] < grown[1_000_000] + 100


def test_functions_and_paths_where_they_do_not_belong(tmp_path):
    X, y = data(300)
    model = MeshClassifier(2, max_epochs=1, random_state=0).fit(X, y > 0)
    np.save(tmp_path / "X.npy", X)
    np.testing.assert_array_equal(model.predict_proba(tmp_path / "X.npy"), model.predict_proba(X))

    def blocks():
        yield X, y

    with pytest.raises(DataError, match="function blocks"):
        MeshClassifier().fit(blocks)
    with pytest.raises(MeshError, match=r"rows\.parquet"):
        model.predict("rows.parquet")
