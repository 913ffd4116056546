"""Interrupted runs resume bit by bit."""

import copy
import os
import pickle

import numpy as np
import pytest

import meshnn
from meshnn import Mesh, MeshClassifier, MeshError, Topology, storage
from meshnn.engine import Steps
from meshnn.errors import CheckpointWarning, TrainingInterrupted
from meshnn.files import Lock
from meshnn.storage import FileError
from meshnn.tables.synthetic import spirals
from meshnn.training import SGD, Adam, Callback, Checkpoint, Settings, TimeLimit, Trainer
from meshnn.training.api import as_samples
from meshnn.training.callbacks import Resumed
from meshnn.training.solvers.lm import LevenbergMarquardt
from row_sources import same

RUNS = {
    "adam": {"solver": "adam", "batch_size": 32, "early_stopping": True, "n_restarts": 2, "max_epochs": 40, "tol": 0,
             "random_state": 3},
    "lm": {"solver": "lm", "l2": "evidence", "max_epochs": 60, "tol": 0, "random_state": 3},
    "full": {"solver": "sgd", "batch_size": None, "max_epochs": 300, "l2": 1e-4, "tol": 0, "random_state": 3},
}  # fmt: skip


def stop_at(epoch):
    def stop(row, mesh):
        if row.epoch == epoch:
            raise KeyboardInterrupt

    return stop


@pytest.mark.parametrize("seed", [None, 5])
def test_a_run_without_an_integer_seed_resumes(seed, tmp_path):
    """The file stores the seed of an unseeded run, and a generator may have advanced."""
    X, y = spirals(100, random_state=0)
    path = tmp_path / "run.mesh"
    options = {"solver": "adam", "batch_size": 20, "max_epochs": 8, "tol": 0, "early_stopping": True}
    model = MeshClassifier(4, callbacks=[Checkpoint(path), stop_at(3)], **options)
    model.set_params(random_state=None if seed is None else np.random.default_rng(seed))
    with pytest.raises(TrainingInterrupted):
        model.fit(X, y)
    whole = storage.read(path)["training"]["seed"] if seed is None else np.random.default_rng(seed)
    model.set_params(callbacks=Checkpoint(path)).fit(X, y)
    same(model, MeshClassifier(4, random_state=whole, **options).fit(X, y))


def test_a_run_that_a_callback_stopped_resumes(tmp_path, capsys):
    """It does not count as finished: the second fit ends like an uninterrupted one."""
    X, y = spirals(100, random_state=0)
    options = {"solver": "adam", "batch_size": 20, "max_epochs": 8, "tol": 0, "random_state": 0, "n_restarts": 2}
    path = tmp_path / "run.mesh"
    first = MeshClassifier(4, callbacks=[Checkpoint(path), lambda row, mesh: row.epoch == 3], **options).fit(X, y)
    assert first.n_iter_ == 3
    assert first.history_[-1].note.endswith("stopped by a callback")
    assert "checkpoint" not in capsys.readouterr().err
    again = MeshClassifier(4, callbacks=Checkpoint(path), verbose=1, **options).fit(X, y)
    assert f"resuming from the checkpoint {path}: after 3 history rows" in capsys.readouterr().err
    same(again, MeshClassifier(4, **options).fit(X, y))
    MeshClassifier(4, callbacks=Checkpoint(path), verbose=1, **options).fit(X, y)
    assert "a finished run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("every", "saved"), [(0, [0, 1, 2, 3, 4, 5]), (2, [0, 1, 1, 3, 3, 5]), (4, [0, 1, 1, 1, 1, 5])]
)
def test_a_checkpoint_is_saved_as_often_as_asked(every, saved, tmp_path):
    """Each row takes one second on a simulated clock, and sees the result of the rows before it."""
    X, y = spirals(60, random_state=0)
    path, seconds, found = tmp_path / "run.mesh", [0], []

    def look(row, mesh):
        seconds[0] += 1
        found.append(len(meshnn.load(path).history_) if path.exists() else 0)

    checkpoint = Checkpoint(path, every=every, clock=lambda: seconds[0])
    options = {"solver": "adam", "l2": 0.0, "max_epochs": 6, "tol": 0, "random_state": 0}
    model = MeshClassifier(3, callbacks=[checkpoint, look], **options).fit(X, y)
    assert found == saved
    same(meshnn.load(path), model)  # the end is saved regardless of the interval


def test_callbacks_are_functions_or_objects_with_hooks():
    X, y = spirals(60, random_state=0)
    told = []

    class Tells(Callback):
        def on_fit_begin(self):
            told.append("begin")

        def on_epoch_end(self, row, mesh):
            told.append(row.epoch)

        def on_fit_end(self):
            told.append("end")

    options = {"solver": "adam", "l2": 0.0, "max_epochs": 3, "tol": 0, "random_state": 0}
    MeshClassifier(3, callbacks=[Tells(), lambda row, mesh: row.epoch == 2], **options).fit(X, y)
    assert told == ["begin", 1, 2, "end"]
    stopped = MeshClassifier(3, callbacks=TimeLimit(1e-9), **options).fit(X, y)
    assert [row.note for row in stopped.history_] == ["stopped: time limit reached"]
    with pytest.raises(MeshError, match=r"callbacks .*3"):
        MeshClassifier(3, callbacks=[3], **options).fit(X, y)
    with pytest.raises(MeshError, match=r"seconds .*0"):
        TimeLimit(0)


@pytest.mark.slow
def test_another_runs_file_is_refused(tmp_path):
    X, y = spirals(100, random_state=0)
    path, model = tmp_path / "run.mesh", tmp_path / "model.mesh"
    same_run = {"max_epochs": 3, "random_state": 0}
    MeshClassifier(4, **same_run, callbacks=Checkpoint(path)).fit(X, y).save(model)
    before = path.read_bytes()
    for options, data, names in [
        ({"max_epochs": 2}, (X, y), "max_epochs"),
        ({"random_state": 1}, (X, y), "random_state"),
        ({"max_epochs": 4, "l2": 0.1}, (X, y), "l2"),
        ({"max_epochs": 4, "n_restarts": 2}, (X, y), "max_epochs, n_restarts"),
        ({"mesh": Topology.mesh(2, 3, 2)}, (X, y), "mesh"),
        ({"class_weight": {np.int64(0): 2}}, (X, y), "class_weight, sample_weight"),
        ({}, (X + 1, y), "X"),
        ({}, (X, 1 - y), "y"),
        ({}, (X, y, np.ones(100)), "sample_weight"),
    ]:
        with pytest.raises(FileError, match=rf"run\.mesh .*another {names};"):
            MeshClassifier(4, callbacks=Checkpoint(path), **same_run | options).fit(*data)
    assert path.read_bytes() == before
    # parameters that do not affect training may differ
    MeshClassifier(4, max_epochs=np.int64(3), n_jobs=2, callbacks=Checkpoint(path, 5), verbose=0).fit(X, y)
    path.write_bytes(before[:-10])
    refused = {"model": model, "damaged": path, "directory": tmp_path, "exist": tmp_path / "no" / "run.mesh",
               "long": tmp_path / ("x" * 300)}  # fmt: skip
    for message, name in refused.items():
        with pytest.raises(FileError, match=message):
            MeshClassifier(4, **same_run, callbacks=Checkpoint(name)).fit(X, y)
    with pytest.raises(MeshError, match=r"every .*-1"):
        Checkpoint(path, every=-1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adam", "lm"])
def test_invalid_states_are_rejected(name):
    """An edited state raises a MeshError, or training continues."""
    X, y = spirals(60, random_state=0)
    settings = Settings(solver=name, batch_size=16, n_restarts=2, max_epochs=6, tol=0.0)

    def trainer():
        mesh = Mesh(Topology.mesh(2, 3, 2), ticks=3, activation="tanh", dtype="float64", random_state=0)
        return Trainer(mesh, as_samples(mesh, X, y, "cross_entropy"), settings, seed=1)

    half = trainer()
    for _ in zip(range(9), half.rows(), strict=False):  # in the second start
        pass
    state = half.state()
    refused = 0

    def goes_on(tree):
        nonlocal refused
        again = trainer()
        try:
            Checkpoint("run.mesh").restore(Resumed(1, tree, 12), again.restore)
        except FileError:
            refused += 1
            return None
        for _ in again.rows():
            pass
        assert np.isfinite(again.mesh.weights).all()
        return again.mesh.weights

    for key in places(state):
        tree = copy.deepcopy(state)
        inside = tree
        for step in key[:-1]:
            inside = inside[step]
        was = inside[key[-1]]
        wrong = (np.zeros(0), np.zeros(1), np.full(len(was), np.nan), was[None]) if isinstance(was, np.ndarray) else ()
        for value in (None, "x", -1, *wrong):
            inside[key[-1]] = value
            goes_on(tree)  # changed notes and numbers may be valid
    assert refused > 80
    for _ in half.rows():
        pass
    np.testing.assert_array_equal(goes_on(state), half.mesh.weights)


def places(value, path=()):
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, key)
        if isinstance(item, (dict, list)):
            yield from places(item, (*path, key))


@pytest.mark.parametrize("name", list(RUNS))
@pytest.mark.parametrize("moment", ["before", "after"])
def test_ctrl_c_in_the_middle_of_a_row(name, moment, tmp_path, monkeypatch):
    """The weights have changed, but the count of epochs has not: the state after the last complete row is saved."""
    X, y = spirals(200, random_state=0)
    path = tmp_path / "run.mesh"
    options = RUNS[name] | {"max_epochs": 12, "n_restarts": 2}
    monkeypatch.setattr("meshnn.training.trainer.search", lambda *args: None)  # no search: rows are counted
    count = 0

    def interrupted(true):
        def advance(self, *arguments):
            nonlocal count
            count += 1
            if count == 16 and moment == "before":
                raise KeyboardInterrupt
            found = true(self, *arguments)
            if count == 16:
                raise KeyboardInterrupt
            return found

        return advance

    with monkeypatch.context() as patch:
        if name == "lm":
            patch.setattr(LevenbergMarquardt, "_iterate", interrupted(LevenbergMarquardt._iterate))
        else:
            patch.setattr(Steps, "epochs", interrupted(Steps.epochs))
        cut = MeshClassifier(5, ticks=3, callbacks=Checkpoint(path), **options)
        with pytest.raises(TrainingInterrupted, match="interrupted after epoch 3: the best"):
            cut.fit(X, y)
    assert count == 16
    assert cut.score(X, y) > 0.4
    assert len(cut.history_) == 15
    assert storage.read(path)["training"]["state"]["members"][0]["restart"] == 1
    same(
        MeshClassifier(5, ticks=3, callbacks=Checkpoint(path), **options).fit(X, y),
        MeshClassifier(5, ticks=3, **options).fit(X, y),
    )


def refuse_writing(monkeypatch, path, when):
    """Make some writes fail with a full disk, counted from 1."""
    true, count = storage.write, 0

    def full(*arguments):
        nonlocal count
        count += 1
        if when(count):
            raise FileError(f"cannot write {path}: no space left on the disk; free some or choose another place")
        true(*arguments)

    monkeypatch.setattr(storage, "write", full)


@pytest.mark.parametrize("last", [8, 99])
def test_a_full_disk_does_not_end_training(last, tmp_path, monkeypatch):
    """The first failure raises a warning, and so does a failure at the end of training."""
    X, y = spirals(200, random_state=0)
    path = tmp_path / "run.mesh"
    options = {"max_epochs": 12, "tol": 0, "random_state": 0, "solver": "lm"}
    whole = MeshClassifier(5, ticks=3, **options).fit(X, y)
    model = MeshClassifier(5, ticks=3, callbacks=Checkpoint(path, every=0), **options)
    with monkeypatch.context() as patch:
        refuse_writing(patch, path, lambda count: 6 <= count <= last)
        with pytest.warns(CheckpointWarning) as caught:
            model.fit(X, y)
    assert len(caught) == (1 if last == 8 else 2)  # not one warning per failure
    assert "no space left on the disk" in str(caught[0].message)
    assert len(meshnn.load(path).history_) == (12 if last == 8 else 5)
    same(model, whole)
    same(MeshClassifier(5, ticks=3, callbacks=Checkpoint(path), **options).fit(X, y), whole)
    other = tmp_path / "other.mesh"
    with monkeypatch.context() as patch:
        refuse_writing(patch, other, lambda count: True)
        with pytest.raises(FileError, match="no space left"):  # the state is kept
            MeshClassifier(5, ticks=3, callbacks=Checkpoint(other), **options).fit(X, y)


def test_a_lock_ends_with_the_run_however_it_ends(tmp_path, monkeypatch):
    X, y = spirals(100, random_state=0)
    path = tmp_path / "run.mesh"

    def fail(row, mesh):
        with pytest.raises(FileError, match=f"in use by process {os.getpid()}"):
            Lock(path)
        raise error

    for error in (KeyboardInterrupt(), RuntimeError("odd")):
        with pytest.raises(RuntimeError if isinstance(error, RuntimeError) else TrainingInterrupted):
            MeshClassifier(4, max_epochs=3, random_state=0, callbacks=[Checkpoint(path), fail]).fit(X, y)
        assert os.listdir(tmp_path) == ["run.mesh"]


@pytest.mark.parametrize("saved", [False, True])
def test_an_interruption_says_what_it_means(saved, tmp_path):
    X, y = spirals(100, random_state=0)
    path = tmp_path / "run.mesh" if saved else None
    callbacks = [*([Checkpoint(path)] if saved else []), stop_at(2)]
    model = MeshClassifier(4, solver="lm", max_epochs=5, tol=0, callbacks=callbacks)
    with pytest.raises(KeyboardInterrupt) as caught:
        model.fit(X, y)
    assert model.n_iter_ == 2  # the model is fitted
    assert model.predict(X).shape == y.shape
    for message in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert isinstance(message, TrainingInterrupted)
        assert (message.epoch, message.checkpoint) == (2, path)


@pytest.mark.slow
def test_a_warm_start_that_was_interrupted_goes_on_too(tmp_path):
    X, y = spirals(100, random_state=0)
    options = {"solver": "adam", "batch_size": 20, "max_epochs": 6, "tol": 0, "random_state": 0, "warm_start": True}
    whole, cut = (MeshClassifier(4, **options).fit(X, y) for _ in range(2))
    path = tmp_path / "run.mesh"
    cut.set_params(callbacks=[Checkpoint(path), stop_at(3)])
    with pytest.raises(TrainingInterrupted):
        cut.fit(X, y)
    cut.set_params(callbacks=Checkpoint(path)).fit(X, y)
    same(cut, whole.fit(X, y))
    with pytest.raises(FileError, match="another weights"):  # a third round would be another run
        cut.fit(X, y)


def test_a_graph_drawn_at_random_must_be_drawn_again_alike(tmp_path):
    X, y = spirals(100, random_state=0)
    drawn = iter([1, 2])

    def topology(n_in, n_out):
        return Topology.mesh(n_in, 6, n_out, density=0.5, random_state=next(drawn))

    options = {"mesh": topology, "ticks": 3, "max_epochs": 5, "random_state": 0, "solver": "lm"}
    with pytest.raises(TrainingInterrupted):
        MeshClassifier(callbacks=[Checkpoint(tmp_path / "run.mesh"), stop_at(1)], **options).fit(X, y)
    with pytest.raises(MeshError, match="another graph"):
        MeshClassifier(callbacks=Checkpoint(tmp_path / "run.mesh"), **options).fit(X, y)


@pytest.mark.slow
@pytest.mark.parametrize("options", [
    {"solver": "lm"},
    {"solver": "lm", "l2": "evidence", "early_stopping": True},
    {"solver": Adam(schedule="constant"), "batch_size": 20},
    {"solver": SGD(schedule="constant", learning_rate=0.1), "l2": 1e-4, "early_stopping": True},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("finished", [True, False])
def test_more_epochs_go_on_from_a_checkpoint(options, finished, tmp_path):
    """A run of 8 epochs that continues to 20 equals a run of 20, whether it was finished or interrupted."""
    X, y = spirals(100, random_state=0)
    path = tmp_path / "run.mesh"
    settings = options | {"tol": 0, "random_state": 0}

    stop = [] if finished else [stop_at(5)]
    short = MeshClassifier(4, max_epochs=8, callbacks=[Checkpoint(path), *stop], **settings)
    if finished:
        short.fit(X, y)
    else:
        with pytest.raises(TrainingInterrupted):
            short.fit(X, y)
    seen = []
    longer = MeshClassifier(4, max_epochs=20, callbacks=[Checkpoint(path), lambda row, _: seen.append(row)], **settings)
    same(longer.fit(X, y), MeshClassifier(4, max_epochs=20, **settings).fit(X, y))
    assert seen[0].epoch == (9 if finished else 6)
    same(MeshClassifier(4, max_epochs=20, callbacks=Checkpoint(path), **settings).fit(X, y), longer)
    again = MeshClassifier(4, max_epochs=22, callbacks=Checkpoint(path), **settings).fit(X, y)  # a further increase
    same(again, MeshClassifier(4, max_epochs=22, **settings).fit(X, y))
    with pytest.raises(FileError, match="another max_epochs"):
        short.fit(X, y)


@pytest.mark.slow
def test_what_is_said_of_runs_that_get_longer(tmp_path):
    X, y = spirals(100, random_state=0)
    options = {"solver": Adam(learning_rate=0.01), "batch_size": 20, "random_state": 0, "tol": 0}
    options["callbacks"] = Checkpoint(tmp_path / "run.mesh")
    MeshClassifier(4, max_epochs=3, **options).fit(X, y)
    with pytest.warns(UserWarning, match=r"was 3 .* is 6 now"):
        model = MeshClassifier(4, max_epochs=6, **options).fit(X, y)
    rates = [0.005 * (1 + np.cos(np.pi * (5 * epoch - 1) / 30)) for epoch in (4, 5, 6)]  # 5 steps per epoch
    np.testing.assert_allclose(model.history_["learning_rate"][3:], rates)
