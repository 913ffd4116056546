"""Callbacks: hooks at the start of a fit, after each row of its history and at its end.

A plain function of (row, mesh) is also a callback; it stops the fit by returning a true value.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from meshnn import storage
from meshnn.arguments import FROM_0, POSITIVE, real_number, whole_number
from meshnn.errors import CheckpointWarning, MeshError, warn
from meshnn.files import Lock
from meshnn.mesh import Mesh
from meshnn.storage import FileError, Tree
from meshnn.training.history import HistoryRow

Restored = TypeVar("Restored")


class Callback:
    """Base class of callbacks; its hooks do nothing."""

    #: Note in the history if this callback stops a fit.
    reason: str = "stopped by a callback"

    def on_fit_begin(self) -> None:
        """Run before the first row."""

    def on_epoch_end(self, row: HistoryRow, mesh: Mesh) -> bool | None:
        """Run after a row of the history, with the mesh in that state; return True to stop the fit."""
        return None

    def on_fit_end(self) -> None:
        """Run after the last row, unless an error ended the fit."""


class _Function(Callback):
    def __init__(self, function: Callable[[HistoryRow, Mesh], Any]) -> None:
        self._function = function

    def on_epoch_end(self, row: HistoryRow, mesh: Mesh) -> bool:
        return bool(self._function(row, mesh))


def as_callbacks(callbacks: Any) -> list[Callback]:
    """Return callbacks as a list; accepts None, one callback or function, or an iterable of them."""
    if callbacks is None:
        return []
    several = isinstance(callbacks, Iterable) and getattr(callbacks, "ndim", 1) > 0
    found = list(callbacks) if several else [callbacks]
    for callback in found:
        if isinstance(callback, type) or not (isinstance(callback, Callback) or callable(callback)):
            more = "; pass those of scikit-learn to set_callbacks" if hasattr(callback, "on_fit_task_end") else ""
            raise MeshError(f"callbacks must be functions of (row, mesh) or Callbacks, got {callback!r:.100}{more}")
    return [callback if isinstance(callback, Callback) else _Function(callback) for callback in found]


class TimeLimit(Callback):
    """Stop a fit after the first row at which its training time, summed over all restarts, reaches a limit.

    Parameters
    ----------
    seconds : float
        The limit in seconds, above 0.

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
    epochs: int  # maximum number of epochs when the run was started


class Checkpoint(Callback):
    """Save the training state to a `.mesh` file, from which a killed, interrupted or stopped fit resumes exactly.

    A resumed fit has the same bits as one that was never interrupted.

    Parameters
    ----------
    path : str or Path
        The file. If it exists, `fit` resumes from it; use one file per run.
    every : float
        Minimum number of seconds between two saves, default 10; 0 saves after every row. The end of a fit is always
        saved.
    clock : callable
        Function that returns the time in seconds; default `time.monotonic`.
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
        """Return a new checkpoint object for one run, with the same file."""
        return Checkpoint(self.path, self.every, self.clock)

    def begin(self, run: dict[str, str], seed: int | None) -> Resumed | None:
        """Lock the file and return the state of the same run, or None; refuse the file of a different run.

        `max_epochs` may be larger than before if the run has one start.
        """
        self._lock = Lock(self.path)
        if not os.path.lexists(self.path):
            if not self.path.absolute().parent.is_dir():
                raise FileError(f"cannot write the checkpoint {self.path}: its directory does not exist; create it")
            return None
        training = storage.read(self.path).get("training")
        if training is None:
            raise FileError(f"{self.path} is a model, not a checkpoint; choose another file or delete this one")
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
                "delete it or choose another file. In a search or a cross-validation every fit needs its own file"
            )
        return resumed

    def restore(self, resumed: Resumed, restore: Callable[[Tree], Restored]) -> Restored:
        """Return the result of `restore` for the state."""
        with self._checked():
            return restore(resumed.state)

    @contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
            reason = error if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            raise FileError(
                f"cannot resume from the checkpoint {self.path} ({reason}); delete it to start from the beginning"
            ) from None

    def watch(self, tree: Callable[[], Tree]) -> None:
        """Save the result of `tree` from now on; the first save is due at once, so that a bad path fails early."""
        self._tree, self._saved = tree, -float("inf")

    def on_epoch_end(self, row: HistoryRow | None = None, mesh: Mesh | None = None) -> None:
        """Save if a save is due; a failure is an error at the first save, and a warning at later ones."""
        if self._tree is not None and self.clock() - self._saved >= self.every:
            self._saved = self.clock()
            self._save("the checkpoint is out of date; training continues and the save is tried again", self._written)

    def on_fit_end(self) -> None:
        """Save for the last time; a failure is a warning, since the fitted model exists in memory."""
        if self._tree is not None:
            file = "holds an earlier state" if self.exists else "does not exist"
            self._warned = False
            self._save(f"the final state was not saved: the checkpoint {file}; save the model to another place", True)

    def _save(self, failure: str, only_warn: bool) -> None:
        assert self._tree is not None
        try:
            storage.write(self.path, self._tree())
            self._written = True
        except FileError as error:
            if not only_warn:
                raise
            if not self._warned:
                warn(CheckpointWarning(f"{failure} ({error})"))
            self._warned = True

    @property
    def exists(self) -> bool:
        """Whether there is a file to resume from."""
        return self.path.is_file()

    def release(self) -> None:
        """Unlock the file for other runs."""
        if self._lock is not None:
            self._lock.release()

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.path)!r}, every={self.every:g})"


def fingerprint(parameters: dict[str, Any], arrays: dict[str, Any]) -> dict[str, str]:
    """Return texts that identify a run: equal parameters and equal data give equal texts."""
    found = {name: repr(value.tolist() if hasattr(value, "tolist") else value) for name, value in parameters.items()}
    for name, array in arrays.items():
        stamp = hashlib.sha256()
        if array is not None:
            stamp.update(f"{array.dtype.str}{array.shape};".encode())
            # the component arrays of a sparse matrix, or of sequences of different lengths
            names = ("indptr", "indices", "offsets", "weight")
            parts = [getattr(array, part) for part in names if getattr(array, part, None) is not None]
            for part in [*parts, array.data] if parts else [array]:
                stamp.update(np.ascontiguousarray(part).tobytes())
        found[name] = stamp.hexdigest()
    return found
