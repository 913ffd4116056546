"""The end of training: time limits, and epoch limits while the loss still falls."""

import itertools
import signal
import sys
import threading
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

from meshnn import Mesh, MeshClassifier, Topology
from meshnn.errors import TrainingInterrupted
from meshnn.training import Adam, Checkpoint, Settings, TimeLimit, Trainer, trainer
from meshnn.training.api import as_samples
from meshnn.training.signals import sigterm_interrupts

X, Y = load_iris(return_X_y=True)
OPTIONS = {"hidden": 4, "random_state": 0, "max_epochs": 30, "tol": 0}
ADAM = {"solver": "adam", "batch_size": 30}


@pytest.fixture
def clock(monkeypatch):
    """Simulate a clock on which a row takes one second."""
    ticks = itertools.count()
    monkeypatch.setattr(trainer, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))


@pytest.mark.parametrize("more", [{"solver": "lm"}, ADAM, {"early_stopping": True}, {"n_restarts": 5, "max_epochs": 3}])
def test_out_of_time(clock, more):
    more = {"l2": 1e-3} | more  # no search: rows take all the time
    model = MeshClassifier(**OPTIONS | more, callbacks=TimeLimit(7)).fit(X, Y)
    assert len(model.history_) == 7
    assert model.history_[-1].note == "stopped: time limit reached"
    assert [row.note for row in model.history_[:-1]] == [""] * 6
    whole = MeshClassifier(**OPTIONS | more).fit(X, Y)
    np.testing.assert_array_equal(whole.history_["loss"][:7], model.history_["loss"])
    rows = itertools.count(1)
    by_hand = MeshClassifier(**OPTIONS | more, callbacks=lambda row, mesh: next(rows) == 7).fit(X, Y)
    np.testing.assert_array_equal(model.mesh_.weights, by_hand.mesh_.weights)  # the best weights so far


def test_whoever_has_more_time_goes_on(clock, tmp_path):
    path = tmp_path / "run.mesh"
    whole = MeshClassifier(**OPTIONS, **ADAM).fit(X, Y)
    for seconds, rows, fresh in ((5, 5, 5), (5, 5, 0), (12, 12, 7), (100, 30, 18), (3, 30, 0)):
        seen = []
        callbacks = [Checkpoint(path), TimeLimit(seconds), lambda row, mesh, seen=seen: seen.append(row)]
        part = MeshClassifier(**OPTIONS, **ADAM, callbacks=callbacks).fit(X, Y)
        assert len(part.history_) == rows
        np.testing.assert_array_equal(part.history_["loss"], whole.history_["loss"][:rows])
        assert len(seen) == fresh
    np.testing.assert_array_equal(part.mesh_.weights, whole.mesh_.weights)
    assert part.history_ == whole.history_


def warned(**options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        MeshClassifier(**{"hidden": 4, "random_state": 0} | options).fit(X, Y)
    return [str(warning.message) for warning in caught if warning.category is ConvergenceWarning]


def test_out_of_epochs():
    model = MeshClassifier(4, random_state=0, max_epochs=8, solver="lm", n_restarts=3)
    with pytest.warns(ConvergenceWarning, match="after 8 epochs") as caught:
        model.fit(X, Y)
    losses = model.loss_curve_  # of the restart that is kept
    fall = (sum(losses[:4]) - sum(losses[4:])) / 4 / 4
    assert f"still fell by {fall:.2g} per epoch" in str(caught[0].message)
    assert len(warned(solver=Adam(0.01, "constant"), batch_size=None, max_epochs=20)) == 1


@pytest.mark.slow
def test_no_warning_where_training_came_to_its_end():
    assert warned(max_epochs=5, solver="lm", tol=0) == []  # max_epochs is explicit
    assert warned(max_epochs=5, solver="lm", tol=10.0) == []  # falls by less than tol
    assert warned(max_epochs=20, solver="adam") == []  # the learning rate has decreased to 0
    assert warned(max_epochs=1, solver="lm") == []  # no previous loss


@pytest.fixture
def interrupts():
    """Let SIGINT raise KeyboardInterrupt, which a process in the background ignores."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_in_a_finaliser_stops_the_fit(number, monkeypatch):
    """Python ignores exceptions in finalisers; the fit still stops, after the next row."""
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: None)
    rows = []

    class Lost:
        def __del__(self):
            signal.raise_signal(number)

    def callback(row, mesh):
        rows.append(row)
        if len(rows) == 2:
            Lost()

    model = MeshClassifier(**OPTIONS | ADAM, l2=1e-3, callbacks=callback)
    before = signal.getsignal(number)
    with sigterm_interrupts([]), pytest.raises(TrainingInterrupted, match="interrupted after epoch 2"):
        model.fit(X, Y)
    assert len(rows) == 2
    assert signal.getsignal(number) is before


def test_sigterm_handlers_are_kept():
    """A handler of the process is kept, and so is the default without a checkpoint or in a thread."""
    seen = []

    def look(wanted=True):
        with sigterm_interrupts([], wanted):
            seen.append(signal.getsignal(signal.SIGTERM))

    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        look()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        look(wanted=False)
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        look()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen[:3] == [signal.SIG_IGN, signal.SIG_DFL, signal.SIG_DFL]
    assert callable(seen[3])


def test_a_lower_rate_starts_from_the_best_weights():
    """The hold-out labels are inverted, so the current weights are worse than the best ones."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 2)), rng.integers(0, 2, 40)
    mesh = Mesh(Topology.mesh(2, 10, 2), 3, "tanh", dtype="float64", random_state=0)
    samples, held_out = (as_samples(mesh, X, labels, "cross_entropy") for labels in (y, 1 - y))
    settings = Settings(solver="adam", batch_size=8, patience=5, max_epochs=40, l2=0.0)
    run = Trainer(mesh, samples, settings, held_out, 0)
    for row in run.rows():
        if "reduced to 0" in row.note:
            assert not np.array_equal(mesh.weights, run.best.parameters)  # the weights of the row
            mesh.weights[:] = np.nan
    assert row.epoch == 11
    assert np.isfinite(run.history["loss"]).all()  # no step was undone
    assert run.history["validation"].argmin() == 0
