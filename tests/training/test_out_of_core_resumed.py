"""Out-of-core fits that are interrupted in the middle of an epoch resume bit by bit."""

import threading

import numpy as np
import pytest

import meshnn
from meshnn import MeshError, MeshRegressor
from meshnn.engine import Steps
from meshnn.errors import TrainingInterrupted
from meshnn.storage import FileError as StorageError
from meshnn.training import SGD, Checkpoint, EarlyStopping
from meshnn.training.out_of_core import RowFile, StoredSamples
from meshnn.training.trainer import Trainer
from row_sources import FEW, blocks, data, same, scratch

pytestmark = pytest.mark.usefixtures("scratch")
__all__ = ["scratch"]

RUNS = {
    "adam": FEW | {"hidden": 3, "batch_size": 64},
    "search": FEW | {"l2": "auto", "batch_size": 100},
    "restarts": FEW | {"n_restarts": 2, "max_epochs": 2, "early_stopping": True, "batch_size": 100},
    "landing": FEW | {"max_epochs": 30, "tol": 1e9, "early_stopping": EarlyStopping(None, 2), "batch_size": 500},
    "lm": FEW | {"solver": "lm", "l2": 1e-3, "hidden": 2, "max_epochs": 4},
}


class Stop:
    """Raises an error at the n-th call of a method."""

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
    """Run a fit that is interrupted once and resumed."""
    with pytest.MonkeyPatch.context() as patch:
        stop = Stop(patch, owner, name, at)
        model = MeshRegressor(**options, callbacks=Checkpoint(path, every=0))
        with pytest.raises(TrainingInterrupted):
            model.fit(blocks(500, *given))
        assert stop.calls >= at
    assert model.predict(given[0]).shape == (len(given[0]),)  # the model is fitted
    assert meshnn.load(path).predict(given[0][:1]).shape == (1,)
    return MeshRegressor(**options, callbacks=Checkpoint(path)).fit(blocks(333, *given))


@pytest.mark.parametrize(
    ("run", "owner", "name", "times"),
    [
        ("adam", Steps, "epochs", (2, 6)),
        ("adam", Trainer, "_pulse", (1, 4, 8)),
        ("adam", RowFile, "read", (4,)),  # in the reader thread
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
        assert "reduced to 0" in "".join(row.note for row in whole.history_)
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
    options = FEW | {"batch_size": 8, "solver": SGD(1e6, "constant", momentum=0.0)}
    with pytest.raises(MeshError, match="5 retries"):
        MeshRegressor(**options, callbacks=lambda row, mesh: seen.append(row.note)).fit(blocks(500, X, y))
    assert len(seen) == 5
    assert all("back to epoch 0, rate halved to" in note for note in seen)
    options |= {"batch_size": None, "solver": SGD(16.0, "constant", momentum=0.0)}
    model = MeshRegressor(**options).fit(blocks(500, X, y))
    assert [row.note for row in model.history_ if row.note]
    assert np.isfinite(model.mesh_.weights).all()
