"""Callbacks: what happens at the beginning of a fit, after each row of its history and at its end.

A plain function of (row, mesh) is a callback, too; a true answer stops the fit.
"""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from meshnn import storage
from meshnn.arguments import FROM_0, POSITIVE, real_number, whole_number
from meshnn.errors import CheckpointWarning, MeshError
from meshnn.files import Lock
from meshnn.mesh import Mesh
from meshnn.storage import FileError, Tree
from meshnn.training.history import HistoryRow


class Callback:
    """A base of callbacks whose hooks do nothing."""

    #: What the history notes if this callback stops a fit.
    reason: str = "stopped by a callback"

    def on_fit_begin(self) -> None:
        """Before the first row."""

    def on_epoch_end(self, row: HistoryRow, mesh: Mesh) -> bool | None:
        """After a row of the history, with the mesh it is about; True stops the fit."""
        return None

    def on_fit_end(self) -> None:
        """After the last row, if no error ended the fit."""


class _Function(Callback):
    def __init__(self, function: Callable[[HistoryRow, Mesh], Any]) -> None:
        self._function = function

    def on_epoch_end(self, row: HistoryRow, mesh: Mesh) -> bool:
        return bool(self._function(row, mesh))


def as_callbacks(callbacks: Any) -> list[Callback]:
    """Return callbacks as a list; None, a callback, a function or several of them may be passed."""
    if callbacks is None:
        return []
    found = list(callbacks) if isinstance(callbacks, Iterable) else [callbacks]
    for callback in found:
        if isinstance(callback, type) or not (isinstance(callback, Callback) or callable(callback)):
            more = "; set_callbacks takes those of scikit-learn" if hasattr(callback, "on_fit_task_end") else ""
            raise MeshError(f"callbacks must be functions of (row, mesh) or Callbacks, got {callback!r:.100}{more}")
    return [callback if isinstance(callback, Callback) else _Function(callback) for callback in found]


class TimeLimit(Callback):
    """Stops a fit after the row in which its training has taken this many seconds, all restarts together.

    Examples
    --------
    >>> from meshnn.training import TimeLimit
    >>> TimeLimit(60)
    TimeLimit(60)
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = real_number("seconds", seconds, *POSITIVE)

    def __repr__(self) -> str:
        return f"TimeLimit({self.seconds:g})"


class Resumed(NamedTuple):
    """The contents of a checkpoint besides the model."""

    seed: int
    state: Tree
    epochs: int  # the maximum that the run was begun with


class Checkpoint(Callback):
    """A `.mesh` file from which a killed, interrupted or stopped fit goes on, bit by bit.

    Parameters
    ----------
    path : str or Path
    every : float
        Seconds between two savings; 0 saves after every row. The end of a fit is always saved.
    clock : callable
        Returns the time in seconds.
    """

    def __init__(
        self, path: str | os.PathLike[str], every: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise MeshError(f"the path of a Checkpoint must be a str or a Path, got {type(path).__name__}")
        self.path, self.every, self.clock = Path(path), real_number("every", every, *FROM_0), clock
        self._tree: Callable[[], Tree] | None = None
        self._saved = -float("inf")
        self._written = self._warned = False
        self._lock: Lock | None = None

    def anew(self) -> Checkpoint:
        """A checkpoint of the same file for one run."""
        return Checkpoint(self.path, self.every, self.clock)

    def begin(self, run: dict[str, str], seed: int | None) -> Resumed | None:
        """Return the state that the same run left, or None; the file of another run is refused and never overwritten.

        A run may be given more epochs than it was begun with, if it has one start.
        """
        self._lock = Lock(self.path)
        if not os.path.lexists(self.path):
            if not self.path.absolute().parent.is_dir():
                raise FileError(f"cannot write the checkpoint {self.path}: its directory does not exist; create it")
            return None
        training = storage.read(self.path).get("training")
        if training is None:
            raise FileError(f"{self.path} is a model, not a checkpoint; name another file or delete it")
        with self._checked():
            known, state = dict(training["run"]), training["state"]
            resumed = Resumed(whole_number("seed", training["seed"], least=0), state, int(state["epochs"]))
        others = [name for name in sorted(run.keys() | known.keys()) if run.get(name) != known.get(name)]
        longer = run.get("max_epochs", "").isdigit() and resumed.epochs < int(run["max_epochs"])
        if "max_epochs" in others and longer and run.get("n_restarts", "1") == "1":
            others.remove("max_epochs")
        if seed is not None and seed != resumed.seed:
            others.append("random_state")
        if others:
            raise FileError(
                f"the checkpoint {self.path} belongs to a run with another {', '.join(others)}; "
                "delete it or name another file, one for each fit of a search or a cross-validation"
            )
        return resumed

    def restore(self, resumed: Resumed, restore: Callable[[Tree], None]) -> None:
        """Hand the state to a trainer."""
        with self._checked():
            restore(resumed.state)

    @contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
            what = error if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            raise FileError(f"cannot go on from the checkpoint {self.path} ({what}); delete it to start anew") from None

    def watch(self, tree: Callable[[], Tree]) -> None:
        """From now on save what `tree` returns; the first time soon, so that a place that fails does so at once."""
        self._tree, self._saved = tree, -float("inf")

    def on_epoch_end(self, row: HistoryRow | None = None, mesh: Mesh | None = None) -> None:
        """Save if it is time to. Where the first save fails nothing is lost yet: an error; later training goes on."""
        if self._tree is not None and self.clock() - self._saved >= self.every:
            self._saved = self.clock()
            self._save("the checkpoint is not up to date, training goes on and tries again", self._written)

    def on_fit_end(self) -> None:
        """Save for the last time; a failure is a warning, since the model is there."""
        if self._tree is not None:
            what = "holds an earlier state" if self.exists else "does not exist"
            self._warned = False
            self._save(f"the end of training is not in the checkpoint, which {what}: save the model elsewhere", True)

    def _save(self, failure: str, go_on: bool) -> None:
        assert self._tree is not None
        try:
            storage.write(self.path, self._tree())
            self._written = True
        except FileError as error:
            if not go_on:
                raise
            if not self._warned:
                warnings.warn(CheckpointWarning(f"{failure} ({error})"), stacklevel=5)
            self._warned = True

    @property
    def exists(self) -> bool:
        """Whether there is a file to go on from."""
        return self.path.is_file()

    def release(self) -> None:
        """Let other runs have the file."""
        if self._lock is not None:
            self._lock.release()

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.path)!r}, every={self.every:g})"


def fingerprint(parameters: dict[str, Any], arrays: dict[str, Any]) -> dict[str, str]:
    """A run in words: the same parameters and the same data give the same ones."""
    found = {name: repr(value.tolist() if hasattr(value, "tolist") else value) for name, value in parameters.items()}
    for name, array in arrays.items():
        stamp = hashlib.sha256()
        if array is not None:
            stamp.update(f"{array.dtype.str}{array.shape};".encode())
            # the arrays that a sparse matrix, or sequences of different lengths, are made of
            names = ("indptr", "indices", "offsets", "weight")
            parts = [getattr(array, part) for part in names if getattr(array, part, None) is not None]
            for part in [*parts, array.data] if parts else [array]:
                stamp.update(np.ascontiguousarray(part).tobytes())
        found[name] = stamp.hexdigest()
    return found
